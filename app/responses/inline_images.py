"""Images that stand inside JSON as base64: encoded in pieces while the text is sent.

Base64 and JSON of 32 MiB at once stopped every other request of the process for 0.3 s, and needed
four copies. Here a mark stands in the text for each image until its piece of the text is sent.
"""

import base64
import re
import secrets
from collections.abc import Iterator

from app.pipeline.encoded_files import EncodedFile

PIECE = 3 << 16
"""Bytes that are encoded at a time, in 0.3 ms; a multiple of three, so that no piece is padded."""

_MARK = f"{secrets.token_hex(16)}:"
"""Begins all marks. It never leaves the process, so no client can have written it into a text."""

_MARKS = re.compile(re.escape(_MARK.encode()) + rb"([0-9]+)\.")


class InlineImages:
    """The images of one JSON text."""

    def __init__(self) -> None:
        self._images: list[EncodedFile] = []

    def add(self, file: EncodedFile) -> str:
        """The text that stands for an image in the JSON until it is sent."""
        self._images.append(file)
        return f"{_MARK}{len(self._images) - 1}."

    def size(self, text: bytes) -> int:
        """Bytes of all `pieces`."""
        if not self._images:
            return len(text)
        marks = _MARKS.finditer(text)
        return len(text) + sum((self._image(m).size + 2) // 3 * 4 - len(m[0]) for m in marks)

    def pieces(self, text: bytes) -> Iterator[bytes]:
        """The text with base64 in the place of the marks."""
        if not self._images:
            yield text  # answers with labels alone need not be searched
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
