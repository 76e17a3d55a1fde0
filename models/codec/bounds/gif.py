"""GIF: blocks up to the second frame, which is as far as the parser walks to see an animation."""

from models.codec.bounds.refusal import too_large, too_many

MAX_BLOCKS = 4096
_BYTES_PER_BLOCK = 1 << 6
"""One more block is allowed for this number of bytes; encoders fill blocks to 254 or 255."""

MAX_EXTENSIONS = 1000
"""Extensions before the second frame, at most; encoders write up to 5."""

_PER_PIXEL = 20e-9
_EXTENSION, _FRAME = 0x21, 0x2C


def check_gif(data: bytes, max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for too many blocks, or a frame with too many pixels."""
    if len(data) < 13:
        return _PER_PIXEL
    blocks = most = MAX_BLOCKS + len(data) // _BYTES_PER_BLOCK
    at = 13 + _palette(data[10])
    screen = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    frames = 0
    for _ in range(MAX_EXTENSIONS + 2):
        kind = data[at] if at < len(data) else 0
        if kind == _EXTENSION:
            at += 2
        elif kind == _FRAME and at + 11 <= len(data):
            frames += 1
            if frames == 2:
                return _PER_PIXEL
            _check_frame(data[at + 1 : at + 9], screen, max_pixels)
            at += 11 + _palette(data[at + 9])
        elif kind == 0 and at < len(data):
            at += 1  # the parser skips zeros too, one by one, as part of MAX_EXTENSIONS
            continue
        else:
            return _PER_PIXEL
        at, blocks = _behind(data, at, blocks)
        if blocks <= 0:
            allowed = f"a file of its size has at most {most:,}"
            raise too_many("GIF", f"more than {most:,} blocks before its second frame", allowed)
    found, allowed = f"more than {MAX_EXTENSIONS:,} extensions", "encoders write up to 5"
    raise too_many("GIF", found, allowed)


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
