"""Divide a JSON list that arrives in pieces into its elements, in bounded memory."""

import re
from collections.abc import Iterator

from models.domain.errors import MalformedRequest

_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')


class JsonElements:
    """The elements of one JSON list as bytes; each has at most `longest` bytes.

    Only the structure is read here. Parsing checks the inside of an element.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._element = bytearray()
        self._depth = self._count = 0
        self._in_string = self._escaped = self._ended = False

    def write(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the elements that end in the next piece; raises MalformedRequest."""
        place = start = 0
        while place < len(chunk):
            if self._escaped:
                self._escaped, place = False, place + 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(chunk, place)
            if found is None:
                break
            token, place = found[0], found.end()
            if self._divides(token):
                self._take(chunk[start : found.start()])
                start = place
                yield from self._next(token)
        self._take(chunk[start:])
        if not self._depth and self._element.strip():
            raise _no_list()

    @property
    def pending(self) -> int:
        """Return the number of bytes of the element that has come in part."""
        return len(self._element)

    def finish(self) -> None:
        """Raise MalformedRequest if the list has not ended."""
        if not self._ended:
            raise MalformedRequest("the body is not a whole JSON list; it ends before its `]`")

    def _divides(self, token: bytes) -> bool:
        """Take one token; return whether it begins the list, ends it, or ends an element."""
        if self._in_string:
            self._in_string = token != b'"'
            self._escaped = token == b"\\"
            return False
        if token == b'"':
            self._in_string = True
            return False
        if token in b"[{":
            self._depth += 1
            return self._depth == 1
        if token in b"]}":
            self._depth -= 1
            return self._depth <= 0
        return self._depth <= 1

    def _next(self, token: bytes) -> Iterator[bytes]:
        """Yield the element before a token that divides, if there is one."""
        element = bytes(self._element)
        self._element.clear()
        blank = not element.strip()
        if token in b"[{":
            if token == b"{" or not blank or self._ended:
                raise _no_list()
            return
        if self._ended or self._depth < 0 or token == b"}":
            raise _no_list()
        self._ended = token == b"]"
        if blank and not (self._ended and not self._count):
            raise MalformedRequest(f"item {self._count + 1} of the list is empty")
        self._count += 1
        if not blank:
            yield element

    def _take(self, piece: bytes) -> None:
        self._element += piece
        if len(self._element) > self._longest:
            text = f"item {self._count + 1} of the list is longer than {self._longest} bytes"
            raise MalformedRequest(text)


def _no_list() -> MalformedRequest:
    return MalformedRequest('the body is not a JSON list such as [{"url": "https://…"}]')
