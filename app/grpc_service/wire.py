"""Bound the structure of a message before protobuf makes objects of it, and take out its tensors.

Two bytes of a message can become an object of a hundred, so a parser alone would make gigabytes of
a message of megabytes. Source: https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Iterator

from models.domain.errors import MalformedRequest

MOST_FIELDS = 2048
"""Fields of a request, with those of its inputs and of their data."""

MOST_BESIDE = 1 << 16
"""Bytes of a request beside the data of its tensors."""

INPUTS, RAW, CONTENTS = 5, 7, 5
"""Numbers of fields: the inputs and the raw tensors of a request, and the data of an input."""

LONGEST_VARINT = 10

_WRONG = "the message is not a valid protobuf message"

Field = tuple[int, memoryview | None, memoryview]
"""The number of a field, its content if it has a length, and all of its bytes."""


def without_tensors(message: bytes) -> tuple[bytes, list[memoryview]]:
    """Return a request without `raw_input_contents`, and these as views of the message.

    Raises MalformedRequest for too many fields or bytes, and for what is no message.
    """
    return _Scan().of(memoryview(message))


class _Scan:
    """One pass over a message; counts the fields and the bytes beside the tensors."""

    def __init__(self) -> None:
        self._fields_seen = self._beside = 0

    def of(self, message: memoryview) -> tuple[bytes, list[memoryview]]:
        """Return what `without_tensors` does."""
        kept: list[memoryview] = []
        raw: list[memoryview] = []
        for number, content, whole in self._fields(message):
            if number == RAW and content is not None:
                raw.append(content)
                continue
            kept.append(whole)
            if number == INPUTS and content is not None:
                self._input(content)
            else:
                self._count(whole)
        return b"".join(kept), raw

    def _input(self, message: memoryview) -> None:
        for number, content, whole in self._fields(message):
            if number == CONTENTS and content is not None:
                for _ in self._fields(content):
                    pass
            else:
                self._count(whole)

    def _count(self, whole: memoryview) -> None:
        self._beside += len(whole)
        if self._beside > MOST_BESIDE:
            raise MalformedRequest(
                f"the request has more than {MOST_BESIDE} bytes beside its tensors"
            )

    def _fields(self, message: memoryview) -> Iterator[Field]:
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
            content = None
            match tag & 7:
                case 0:
                    _, place = _varint(message, place)
                case 1:
                    place += 8
                case 5:
                    place += 4
                case 2:
                    length, place = _varint(message, place)
                    content = message[place : place + length]
                    place += length
                case _:
                    raise MalformedRequest(_WRONG)
            if place > len(message):
                raise MalformedRequest(_WRONG)
            yield tag >> 3, content, message[start:place]


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
