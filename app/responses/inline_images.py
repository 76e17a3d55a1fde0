"""Put images into JSON as base64, encoded in pieces while the text is sent.

Encoding 32 MiB as base64 and JSON at once blocked every other request of the process for 0.3 s and
needed four copies. Here the text contains a mark for each image until that part of it is sent.
"""

import base64
import re
import secrets
from collections.abc import Iterator

from app.pipeline.results.encoded_files import EncodedFile

PIECE = 3 << 16
"""Number of bytes that are encoded at a time, in 0.3 ms: a multiple of three, so that only the last
piece is padded."""

_MARK = f"{secrets.token_hex(16)}:"
"""Prefix of all marks. It never leaves the process, so no client can write it into a text."""

_MARKS = re.compile(re.escape(_MARK.encode()) + rb"([0-9]+)\.")


class InlineImages:
    """The images of one JSON text."""

    def __init__(self) -> None:
        self._images: list[EncodedFile] = []

    def add(self, file: EncodedFile) -> str:
        """Return the mark of an image, which the JSON contains until it is sent."""
        self._images.append(file)
        return f"{_MARK}{len(self._images) - 1}."

    def size(self, text: bytes) -> int:
        """Return the number of bytes of all `pieces` together."""
        if not self._images:
            return len(text)
        marks = _MARKS.finditer(text)
        return len(text) + sum((self._image(m).size + 2) // 3 * 4 - len(m[0]) for m in marks)

    def pieces(self, text: bytes) -> Iterator[bytes]:
        """Yield the text with base64 in place of the marks."""
        if not self._images:
            yield text  # there are no marks to search for
            return
        place = 0
        for mark in _MARKS.finditer(text):
            yield text[place : mark.start()]
            place = mark.end()
            file = self._image(mark)
            for start in range(0, file.size, PIECE):
                yield base64.b64encode(file.read(start, PIECE))
        yield text[place:]

    def _image(self, mark: re.Match[bytes]) -> EncodedFile:
        return self._images[int(mark[1])]
