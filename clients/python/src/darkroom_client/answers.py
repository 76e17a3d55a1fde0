"""Read answers: lines of JSON, problem documents and typed values. Nothing here does I/O."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import TypeVar

import msgspec

from darkroom_client.errors import InvalidAnswer, Problem
from darkroom_client.records import ImageResult

PROBLEM = "application/problem+json"
MOST_OF_AN_ERROR = 1 << 20
"""Bytes of the answer to a failed request that are read."""

T = TypeVar("T")


class Lines:
    """Cut pieces of a body into lines. Only a line feed ends a line: JSON may contain U+2028."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Add a piece; yield the lines that are complete by now, without blank ones."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._begun.append(line)
            text = b"".join(self._begun)
            self._begun = []
            if text.strip():
                yield text
        if rest:
            self._begun.append(rest)


def decoded(body: bytes, kind: type[T]) -> T:
    """Return JSON as a typed value; raises InvalidAnswer for anything else."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidAnswer(f"the answer is not what Darkroom answers: {error}") from None


def record(line: bytes) -> ImageResult:
    """Return a line of a stream as a result, whose `index` is the place in its request."""
    return decoded(line, ImageResult)


async def records(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[ImageResult, None]:
    """Yield the results in the pieces of a stream, and close it."""
    lines = Lines()
    async with aclosing(pieces):
        async for piece in pieces:
            for line in lines.feed(piece):
                yield record(line)


def is_problem(headers: Mapping[str, str]) -> bool:
    """Return whether an answer is a problem document."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == PROBLEM


def problem(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """Return what a failed request was answered; other programs give no document, only a status."""
    if is_problem(headers):
        try:
            return msgspec.json.decode(body, type=Problem)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # a document that was cut off: its status is all there is
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "unknown status"
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    return Problem("http_error", f"HTTP {status} {phrase}: {text}".rstrip(": "), status, phrase)
