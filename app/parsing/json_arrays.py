"""Cut the arrays of tensors out of a JSON text, and read them piece by piece.

A parser makes an object of every number: 32 bytes for each of two characters. Here the places of
the arrays are found first, and their numbers become bytes some thousand at a time.
"""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.parsing.arriving import Text
from app.parsing.structure import MOST_TEXT
from models.domain.errors import MalformedRequest, TooLarge

PIECE = 1 << 16
"""Characters of numbers that are read at a time, in about a millisecond."""

MOST_ARRAYS = 8
"""Arrays of one text: a request has one tensor."""

_MARK = secrets.token_hex(16)
"""Begins the strings that replace arrays; a client that knew it could name its own array only."""

_DATA = re.compile(rb'"data"[ \t\r\n]{0,64}:[ \t\r\n]{0,64}(?=\[)')
_NUMBERS = re.compile(rb"[\[\]0-9eE+.,\- \t\r\n]*")
_BETWEEN = re.compile(rb"[\[\], \t\r\n]*")
_LONGEST_BETWEEN = 1 << 10
_SPACES = bytes.maketrans(b"[]", b"  ")
_OPEN, _CLOSED = b"[]"

Level = Annotated[int, msgspec.Meta(ge=0, le=255)]

_LEVELS = msgspec.json.Decoder(list[Level])
_FLOATS = msgspec.json.Decoder(list[float])


@dataclass(frozen=True, slots=True)
class JsonArray:
    """The place of an array in a text; `strings` are those of its strings, without their quotes."""

    start: int
    end: int
    strings: tuple[tuple[int, int], ...] = ()


def without_arrays(body: Text, most_strings: int) -> tuple[bytes, dict[str, JsonArray]]:
    """Return the text with a string in place of each array under `data`, and these arrays.

    The strings are the keys of the second value. Raises MalformedRequest, and TooLarge over a
    bound. What stands beside the arrays is not checked.
    """
    kept: list[bytes] = []
    arrays: dict[str, JsonArray] = {}
    place = size = 0
    while found := _DATA.search(body, place, place + MOST_TEXT):
        if len(arrays) == MOST_ARRAYS:
            raise TooLarge(f"the JSON has more than {MOST_ARRAYS} arrays of `data`")
        start = found.end()
        array = _array(body, start, most_strings)
        mark = f"{_MARK}{len(arrays)}"
        arrays[mark] = array
        kept += [bytes(body[place:start]), b'"', mark.encode(), b'"']
        size += start - place
        place = array.end
    size += len(body) - place
    if size > MOST_TEXT:
        raise TooLarge(f"the JSON has more than {MOST_TEXT} bytes apart from `data`")
    kept.append(bytes(body[place:]))
    return b"".join(kept), arrays


def _array(body: Text, start: int, most_strings: int) -> JsonArray:
    between = _between(body, start)
    if body[start + len(between) : start + len(between) + 1] == b'"':
        return _strings(body, start, most_strings)
    place = start
    while (found := _NUMBERS.match(body, place, place + PIECE)) and found.end() == place + PIECE:
        place = found.end()
    place = found.end() if found else place
    tail = bytes(body[max(start, place - _LONGEST_BETWEEN) : place])
    end = place - len(tail) + len(tail.rstrip(b" \t\r\n,"))
    if body[end - 1] != _CLOSED:
        raise MalformedRequest("`data` is no array of numbers, or one of strings")
    return JsonArray(start, end)


def _strings(body: Text, start: int, most: int) -> JsonArray:
    """Return an array of strings; escapes of quotes are not expected in base64."""
    place, depth, outline = start, 0, bytearray()
    strings: list[tuple[int, int]] = []
    while True:
        between = _between(body, place)
        for offset, each in enumerate(between):
            depth += (each == _OPEN) - (each == _CLOSED)
            if depth == 0:
                outline += between[: offset + 1]
                _check_outline(outline)
                return JsonArray(start, place + offset + 1, tuple(strings))
        place += len(between)
        end = body.find(b'"', place + 1)
        if body[place : place + 1] != b'"' or end < 0:
            raise MalformedRequest("`data` is no array of strings")
        if len(strings) == most:
            raise TooLarge(f"`data` has more than {most} strings")
        strings.append((place + 1, end))
        outline += between + b"0"
        place = end + 1


def _between(body: Text, place: int) -> bytes:
    found = _BETWEEN.match(body, place, place + _LONGEST_BETWEEN)
    return b"" if found is None else found[0]


def _check_outline(outline: bytearray) -> None:
    try:
        msgspec.json.decode(outline)
    except msgspec.DecodeError:
        raise MalformedRequest("`data` is not valid JSON") from None


def numbers(body: Text, array: JsonArray, shape: list[int], *, whole: bool) -> Iterator[bytes]:
    """Yield the numbers of an array as bytes, piece by piece: uint8 if `whole`, else float32.

    They stand in one list, or in lists as the shape has them. Raises MalformedRequest.
    """
    nesting, place = _Nesting(shape), array.start
    while place < array.end:
        stop = min(place + PIECE, array.end)
        last = stop == array.end
        if not last:
            stop = body.rfind(b",", place, stop) + 1
            if stop <= place:
                raise MalformedRequest(f"`data` has a number of more than {PIECE} characters")
        piece = bytes(body[place:stop])
        nesting.add(piece, last=last)
        yield _read(piece if last else piece[:-1], whole=whole)
        place = stop
    nesting.check()


def _read(piece: bytes, *, whole: bool) -> bytes:
    text = b"[" + piece.translate(_SPACES) + b"]"
    try:
        if whole:
            return bytes(_LEVELS.decode(text))
        with np.errstate(over="ignore"):  # what is no float32 is found where images are checked
            return np.asarray(_FLOATS.decode(text), np.float32).astype("<f4").tobytes()
    except msgspec.DecodeError as error:
        kind = "whole numbers from 0 to 255" if whole else "numbers"
        raise MalformedRequest(f"`data` has to be {kind}: {_reason(error)}") from None


def _reason(error: msgspec.DecodeError) -> str:
    return (
        str(error).partition(" - at ")[0]
        if isinstance(error, msgspec.ValidationError)
        else ("it is not valid JSON")
    )


class _Nesting:
    """Checks that brackets are those of one list, or those of lists within lists by a shape."""

    def __init__(self, shape: list[int]) -> None:
        lists, self._natural = 1, 0
        for length in shape:
            self._natural += lists
            lists *= length
        self._deepest = len(shape)
        self._depth = self._opened = 0
        self._fits = True

    def add(self, piece: bytes, *, last: bool) -> None:
        """Look at the brackets of the next piece."""
        characters: NDArray[np.uint8] = np.frombuffer(piece, np.uint8)
        brackets = characters[(characters == _OPEN) | (characters == _CLOSED)]
        depths = self._depth + np.cumsum(np.where(brackets == _OPEN, 1, -1))
        self._opened += int((brackets == _OPEN).sum())
        if len(depths):
            self._depth = int(depths[-1])
            inside = depths[:-1] if last else depths
            self._fits &= not len(inside) or 1 <= inside.min() <= inside.max() <= self._deepest

    def check(self) -> None:
        """Raise MalformedRequest if they were not."""
        if not self._fits or self._depth != 0 or self._opened not in (1, self._natural):
            raise MalformedRequest("the lists in `data` do not have the given shape")
