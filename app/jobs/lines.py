"""Divide records that come in pieces of any size at the ends of lines."""

from collections.abc import AsyncIterable, AsyncIterator


async def whole_lines(records: AsyncIterable[bytes | memoryview]) -> AsyncIterator[bytes]:
    """Yield the text in pieces that end at ends of lines.

    A line of many pieces is copied once: records with images have hundreds of them.
    """
    parts: list[bytes] = []
    async for piece in records:
        end = bytes(piece).rfind(b"\n") + 1
        if end:
            yield b"".join([*parts, piece[:end]])
            parts = []
        parts.append(bytes(piece[end:]))
