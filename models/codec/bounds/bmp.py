"""BMP: run lengths, which Pillow reads in Python, one by one."""

from models.codec.bounds.refusal import too_many

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
