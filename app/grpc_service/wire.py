"""Bound the structure of a message before protobuf makes objects of it, and take out its tensors.

Two bytes of a message can become an object of a hundred, and 8 MiB of packed numbers took an event
loop a second, so protobuf parses only what stands beside the data of tensors.
Source: https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from models.domain.errors import MalformedRequest

MOST_FIELDS = 2048
"""Fields of a request, with those of its inputs and of their data."""

MOST_BESIDE = 1 << 16
"""Bytes of a request beside the data of its tensors."""

INPUTS, RAW, CONTENTS = 5, 7, 5
"""Numbers of fields: the inputs and the raw tensors of a request, and the data of an input."""

UINT, FP32, BYTES = 4, 6, 8
"""Numbers of the fields of an input's data that are read; all others are skipped."""

VARINT, DELIMITED, FIXED32 = 0, 2, 5
"""Wire types of fields."""

_DATA = {UINT: (VARINT, DELIMITED), FP32: (FIXED32, DELIMITED), BYTES: (DELIMITED,)}
"""The wire types that these fields may have: numbers come packed, or each in a field."""

LONGEST_VARINT = 10

_WRONG = "the message is not a valid protobuf message"


@dataclass(frozen=True, slots=True)
class Message:
    """A message in parts: its bytes `beside` the data of tensors, and views of these data.

    `raw` are the tensors of `raw_input_contents`. `contents` are the data of inputs by the numbers
    of their fields, in order; None if no input has any.
    """

    beside: bytes
    raw: list[memoryview]
    contents: dict[int, list[memoryview]] | None


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: its number, its wire type, its content, and all of its bytes."""

    number: int
    kind: int
    content: memoryview
    whole: memoryview


def taken_apart(message: bytes) -> Message:
    """Return a request and its tensors, which are views of the message.

    Raises MalformedRequest for too many fields or bytes, and for what is no message.
    """
    scan = _Scan()
    beside = scan.request(memoryview(message))
    return Message(beside, scan.raw, scan.contents)


@dataclass(slots=True)
class _Scan:
    """One pass over a message; counts the fields and the bytes beside the tensors."""

    raw: list[memoryview] = field(default_factory=list)
    contents: dict[int, list[memoryview]] | None = None
    _fields_seen: int = 0
    _beside: int = 0

    def request(self, message: memoryview) -> bytes:
        """Return a request without the data of its tensors."""
        kept: list[memoryview] = []
        for each in self._fields(message):
            if each.number == RAW and each.kind == DELIMITED:
                self.raw.append(each.content)
            elif each.number == INPUTS and each.kind == DELIMITED:
                kept += self._input(each.content)
            else:
                kept.append(self._counted(each))
        return b"".join(kept)

    def _input(self, message: memoryview) -> list[memoryview]:
        """Return the parts of an input without its data."""
        kept: list[memoryview] = []
        for each in self._fields(message):
            if each.number == CONTENTS and each.kind == DELIMITED:
                self._data(each.content)
            else:
                kept.append(self._counted(each))
        size = sum(map(len, kept))
        return [memoryview(bytes([INPUTS << 3 | DELIMITED]) + _as_varint(size)), *kept]

    def _data(self, message: memoryview) -> None:
        if self.contents is None:
            self.contents = {}
        for each in self._fields(message):
            if each.kind in _DATA.get(each.number, ()):
                self.contents.setdefault(each.number, []).append(each.content)

    def _counted(self, found: _Field) -> memoryview:
        self._beside += len(found.whole)
        if self._beside > MOST_BESIDE:
            raise MalformedRequest(
                f"the request has more than {MOST_BESIDE} bytes beside its tensors"
            )
        return found.whole

    def _fields(self, message: memoryview) -> Iterator[_Field]:
        place = 0
        while place < len(message):
            self._fields_seen += 1
            if self._fields_seen > MOST_FIELDS:
                raise MalformedRequest(
                    f"the request has more than {MOST_FIELDS} fields; send the data of tensors "
                    "packed or in raw_input_contents"
                )
            start = place
            tag, place = _varint(message, place)
            begin, place = _content(message, place, tag & 7)
            if place > len(message):
                raise MalformedRequest(_WRONG)
            yield _Field(tag >> 3, tag & 7, message[begin:place], message[start:place])


def _content(message: memoryview, place: int, kind: int) -> tuple[int, int]:
    """Return where the content of a field begins and ends, which may be behind the message."""
    match kind:
        case 0:
            return place, _varint(message, place)[1]
        case 1:
            return place, place + 8
        case 2:
            length, begin = _varint(message, place)
            return begin, begin + length
        case 5:
            return place, place + 4
        case _:
            raise MalformedRequest(_WRONG)


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return a number of a message, and the place behind it."""
    value = 0
    for shift in range(0, 7 * LONGEST_VARINT, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise MalformedRequest(_WRONG)
