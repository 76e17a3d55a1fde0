"""Decode `data:image/…;base64,…` (RFC 2397) in pieces: one call for all of it holds the GIL.

32 MiB in one call stopped every other request of the process for half a second.
"""

import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass

from app.parsing.arriving import Text
from models.domain.errors import MalformedRequest

PIECE = 1 << 18
"""Characters that are decoded at a time, in about a millisecond."""

_LONGEST_ESCAPE = 6
_KEPT = 8
"""Digits that are decoded last, because padding is among them."""


@dataclass(frozen=True, slots=True)
class DataUri:
    """A data URI inside a JSON text: the content of a string, escapes included.

    A `bare` one is base64 alone, without the beginning that names its type.
    """

    text: Text
    start: int
    end: int
    bare: bool = False

    @classmethod
    def of(cls, uri: str) -> "DataUri":
        """Return a data URI that was parsed already."""
        text = json.dumps(uri)[1:-1].encode()
        return cls(text, 0, len(text))

    @property
    def size(self) -> int:
        """Return the number of decoded bytes if it is valid; 0 if only decoding can tell."""
        comma = self.text.find(b",", self.start, min(self.end, self.start + PIECE))
        if self.bare:
            comma = self.start - 1
        elif comma < 0:
            return 0
        if self.text.find(b"\\", self.start, self.end) >= 0:
            return 0
        padding = self.text[max(comma, self.end - 2) : self.end].count(b"=")
        return (self.end - comma - 1) * 3 // 4 - padding

    def pieces(self) -> Iterator[bytes]:
        """Yield the decoded bytes, piece by piece; raise MalformedRequest."""
        try:
            texts = self._unescaped()
            if self.bare:
                yield from _decoded(next(texts, b""), texts)
                return
            head, comma, first = next(texts, b"").partition(b",")
            head = head.lower()
            if not (comma and head.startswith(b"data:") and head.endswith(b";base64")):
                raise MalformedRequest("not a data URI of the form data:image/…;base64,…")
            yield from _decoded(first, texts)
        except ValueError:
            what = "the element" if self.bare else "the data URI"
            raise MalformedRequest(f"{what} is not valid base64") from None

    def _unescaped(self) -> Iterator[bytes]:
        """Yield the characters; some encoders of JSON escape `/`, `+` and `=`."""
        place = self.start
        while place < self.end:
            piece = bytes(self.text[place : min(place + PIECE, self.end)])
            if b"\\" in piece:
                if place + len(piece) < self.end:
                    piece = _without_open_escape(piece)
                yield json.loads(b'"' + piece + b'"').encode(errors="replace")
            else:
                yield piece
            place += len(piece)


def _without_open_escape(piece: bytes) -> bytes:
    """Return a piece without an escape at its end, which may continue in the next piece."""
    escape = piece.rfind(b"\\", len(piece) - _LONGEST_ESCAPE)
    return piece[:escape] if escape > 0 else piece


def _decoded(text: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of base64 digits; raise ValueError."""
    for piece in others:
        # Four digits are three bytes. The last digits wait for the next piece, because padding is
        # allowed at the very end alone.
        ready = max(0, len(text) - _KEPT) // 4 * 4
        if b"=" in text[:ready]:
            raise ValueError("padding before the end")
        yield binascii.a2b_base64(text[:ready], strict_mode=True)
        text = text[ready:] + piece
    yield binascii.a2b_base64(text, strict_mode=True)
