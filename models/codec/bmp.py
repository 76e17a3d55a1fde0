"""The colour profile of a BMP (BITMAPV5HEADER), which Pillow does not read."""

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
