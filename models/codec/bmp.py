"""BMP: the time of run lengths, which Pillow reads singly in Python, and the colour profile, which
Pillow does not read.
"""

_PER_PIXEL, _PER_RUN_PIXEL, _PER_RUN = 10e-9, 100e-9, 0.5e-6
_RLE8, _RLE4 = 1, 2


def bmp_cost(data: bytes) -> float:
    """Return CPU seconds a pixel."""
    old = int.from_bytes(data[14:18], "little") < 40
    if old or int.from_bytes(data[30:34], "little") not in (_RLE8, _RLE4):
        return _PER_PIXEL
    width, height = (int.from_bytes(data[n : n + 4], "little", signed=True) for n in (18, 22))
    size = max(0, len(data) - int.from_bytes(data[10:14], "little"))
    return _PER_RUN_PIXEL + _PER_RUN * size / 2 / max(1, abs(width * height))


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
