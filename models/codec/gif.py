"""GIF: blocks up to the second frame, which is as far as the parser walks to see an animation.

The walk is that of Pillow's parser, also where a file breaks the rules of the format.
"""

import re

from models.codec.refusal import too_large, too_many

MAX_BLOCKS = 4096
_BYTES_PER_BLOCK = 1 << 6
"""One more block is allowed for this number of bytes; encoders fill blocks to 254 or 255."""

MAX_EXTENSIONS = 1000
"""Extensions before the second frame, at most; encoders write up to 5."""

MAX_FILL = 1 << 16
"""Bytes between blocks that belong to none, at most; the parser reads them one by one."""

_PER_PIXEL = 20e-9
_EXTENSION, _FRAME = 0x21, 0x2C
_COMMENT, _APPLICATION = b"\xfe", b"\xff"
_NEXT = re.compile(rb"[!,;]")
"""The first byte of an extension, of a frame, and of the end."""


def check_gif(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for too many blocks, or a frame with too many pixels."""
    if len(data) < 13:
        return _PER_PIXEL
    blocks = most = MAX_BLOCKS + len(data) // _BYTES_PER_BLOCK
    at = 13 + _palette(data[10])
    screen = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    frames = fill = 0
    for _ in range(MAX_EXTENSIONS + 2):
        start, at = at, _next(data, at)
        fill += max(0, at - start)
        if fill > MAX_FILL:
            allowed = f"at most {MAX_FILL:,} are allowed"
            raise too_many("GIF", f"{fill:,} bytes or more between its blocks", allowed)
        kind = data[at] if at < len(data) else 0
        if kind == _EXTENSION:
            at, blocks = _content(data, at, blocks, first_frame=not frames)
        elif kind == _FRAME and at + 11 <= len(data):
            frames += 1
            if frames == 2:
                return _PER_PIXEL
            _check_frame(data[at + 1 : at + 9], screen, max_pixels)
            at += 11 + _palette(data[at + 9])
        else:
            return _PER_PIXEL
        at, blocks = _behind(data, at, blocks)
        if blocks <= 0:
            allowed = f"a file of its size has at most {most:,}"
            raise too_many("GIF", f"more than {most:,} blocks before its second frame", allowed)
    found, allowed = f"more than {MAX_EXTENSIONS:,} extensions", "encoders write up to 5"
    raise too_many("GIF", found, allowed)


def _next(data: bytes, at: int) -> int:
    """Return where the next extension, frame or end begins; bytes of any further kind are
    skipped.
    """
    found = _NEXT.search(data, at)
    return found.start() if found else len(data)


def _content(data: bytes, at: int, blocks: int, *, first_frame: bool) -> tuple[int, int]:
    """Return where the parser begins to read the blocks of an extension at `at` up to an empty
    block.

    The second number is how many of `blocks` are left. Only a comment ends with its first empty
    block: before the chain of an extension of any further kind the parser reads a block, and the
    repetitions of an animation, whether they are empty or not.
    """
    label, at = data[at + 1 : at + 2], at + 2
    if label == _COMMENT:
        return at, blocks
    size = data[at] if at < len(data) else 0
    repeats = data.startswith(b"NETSCAPE2.0", at + 1) and size >= 11
    at += size + 1
    if first_frame and label == _APPLICATION and repeats:
        return at + 1 + (data[at] if at < len(data) else 0), blocks - 2
    return at, blocks - 1


def _behind(data: bytes, at: int, blocks: int) -> tuple[int, int]:
    """Return where the chain of sub-blocks at `at` ends, and how many of `blocks` are left."""
    end = len(data)
    while blocks > 0 and at < end:
        size = data[at]
        at += size + 1
        blocks -= 1
        if not size:
            break
    return at, blocks


def _palette(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _check_frame(place: bytes, screen: tuple[int, int], max_pixels: int) -> None:
    left, top, width, height = (int.from_bytes(place[n : n + 2], "little") for n in (0, 2, 4, 6))
    width, height = max(screen[0], left + width), max(screen[1], top + height)
    if width * height > max_pixels:
        raise too_large(width, height, max_pixels)
