"""BMP: run lengths, which Pillow reads singly in Python, and the colour profile, which Pillow does
not read.
"""

from models.codec.refusal import too_many

MAX_RUN_BYTES = 4 << 20
"""Bytes of run-length data, at most: some 2 million runs of 0.5 µs. Photos are not stored
that way.
"""

_PER_PIXEL, _PER_RUN_PIXEL, _PER_RUN = 10e-9, 100e-9, 0.5e-6
_RLE8, _RLE4 = 1, 2


def check_bmp(data: bytes, _max_pixels: int) -> float:
    """Return CPU seconds a pixel; raise for run-length data out of proportion."""
    if len(data) < 34 or int.from_bytes(data[14:18], "little") < 40:
        return _PER_PIXEL
    if int.from_bytes(data[30:34], "little") not in (_RLE8, _RLE4):
        return _PER_PIXEL
    width, height = (int.from_bytes(data[n : n + 4], "little", signed=True) for n in (18, 22))
    pixels = max(1, abs(width * height))
    size = max(0, len(data) - int.from_bytes(data[10:14], "little"))
    # Each pixel a run of its own, an end at each row, and a little that no decoder needs.
    most = min(MAX_RUN_BYTES, 4 * pixels + 4 * abs(height) + 1024)
    if size > most:
        allowed = f"at most {most:,} are allowed for its size"
        raise too_many("BMP", f"{size:,} bytes of run lengths", allowed)
    return _PER_RUN_PIXEL + _PER_RUN * size / 2 / pixels


_HEADER, _V5 = 14, 124
_COLOURS, _PROFILE, _SIZE = _HEADER + 56, _HEADER + 112, _HEADER + 116
_EMBEDDED = b"DEBM"


def embedded_profile(data: bytes) -> bytes | None:
    """Return the ICC profile inside a BMP, unchecked."""
    if int.from_bytes(data[_HEADER : _HEADER + 4], "little") < _V5:
        return None
    if data[_COLOURS : _COLOURS + 4] != _EMBEDDED:
        return None
    start = _HEADER + int.from_bytes(data[_PROFILE : _PROFILE + 4], "little")
    size = int.from_bytes(data[_SIZE : _SIZE + 4], "little")
    return data[start : start + size] or None
