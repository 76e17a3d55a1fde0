"""Decode numbers from 0 to 255 that protobuf packed, without an object for each."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from models.domain.errors import MalformedRequest

PART = 1 << 18
"""Bytes that are decoded at a time: arrays of positions take eight times their memory."""

MORE = 128
"""The bit of a byte that says that its number goes on in the next byte."""


def octets(pieces: Iterable[memoryview]) -> bytes:
    """Return the numbers of packed fields, in which each takes one byte below 128, else two.

    Raises MalformedRequest for larger numbers, and for one that does not end.
    """
    found = list[NDArray[np.uint8]]()
    for piece in pieces:
        place = 0
        while place < len(piece):
            part = np.frombuffer(piece[place : place + PART], np.uint8)
            numbers, used = _decoded(part)
            found.append(numbers)
            place += used
    return np.concatenate(found).tobytes() if found else b""


def _decoded(part: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int]:
    """Return the numbers that end within some bytes, and how many bytes they take."""
    last = part < MORE
    if last.all():
        return part, len(part)
    ends = np.flatnonzero(last)
    if not len(ends):
        raise MalformedRequest(
            "the values of a UINT8 tensor are 0 to 255, and each ends in its message"
        )
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins + 1
    two = lengths == 2
    high = part[ends] * two
    if lengths.max() > 2 or high.max() > 1:
        raise MalformedRequest("the values of a UINT8 tensor are 0 to 255")
    low = part[begins] & np.uint8(MORE - 1)
    return low | (high << 7).astype(np.uint8), int(ends[-1]) + 1
