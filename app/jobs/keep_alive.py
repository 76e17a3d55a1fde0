"""Keep a connection alive whose job has nothing to tell: proxies end those that are silent."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

EVERY = 15.0
"""Seconds without a record after which an empty line is sent; proxies wait for 30 and more."""


async def kept_alive(
    rows: AsyncGenerator[bytes | memoryview, None], seconds: float = EVERY
) -> AsyncGenerator[bytes | memoryview, None]:
    """Yield records as JSON Lines, and an empty line after each `seconds` without any.

    Readers of JSON Lines skip empty lines. None is sent inside of a record.
    """
    whole = True

    async def following() -> bytes | memoryview | None:
        return await anext(rows, None)

    async with aclosing(rows):
        while True:
            coming = asyncio.create_task(following())
            try:
                while not (await asyncio.wait([coming], timeout=seconds))[0]:
                    if whole:
                        yield b"\n"
                piece = await coming
            finally:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            if piece is None:
                return
            whole = bytes(piece[-1:]) == b"\n"
            yield piece
