"""Empty lines keep a connection alive whose job has nothing to tell."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.jobs.keep_alive import kept_alive


def test_empty_lines_are_sent_between_records_and_never_inside_of_one() -> None:
    async def main() -> list[bytes]:
        goes_on = asyncio.Event()
        closed = False

        async def rows() -> AsyncGenerator[bytes | memoryview, None]:
            nonlocal closed
            try:
                yield b'{"index": 0}\n{"in'
                await asyncio.sleep(0.05)  # long beside the time after which a line is sent
                yield b'dex": 1}\n'
                await goes_on.wait()
                yield b'{"index": 2}\n'
                await asyncio.Event().wait()
            finally:
                closed = True

        found: list[bytes] = []
        async with aclosing(kept_alive(rows(), 0.001)) as pieces:
            async for piece in pieces:
                found.append(bytes(piece))
                if found[-2:] == [b"\n", b"\n"]:
                    goes_on.set()
                if goes_on.is_set() and found[-1] != b"\n":
                    break
        assert closed
        return found

    found = asyncio.run(main())
    assert found[:4] == [b'{"index": 0}\n{"in', b'dex": 1}\n', b"\n", b"\n"]
    assert found[-1] == b'{"index": 2}\n'


def test_records_end_with_the_job() -> None:
    async def rows() -> AsyncGenerator[bytes | memoryview, None]:
        yield b"1\n"
        yield b"2\n"

    async def main() -> list[bytes]:
        return [bytes(piece) async for piece in kept_alive(rows(), 60.0)]

    assert asyncio.run(main()) == [b"1\n", b"2\n"]
