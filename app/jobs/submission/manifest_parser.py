"""Read a manifest that arrives in pieces, as JSON Lines or as one JSON list."""

from codecs import BOM_UTF8

from app.jobs.manifest import ManifestWriter
from app.jobs.submission.json_list import JsonElements


class ManifestParser:
    """Gives the items of a manifest to `writer`; an element of a list has at most `longest` bytes.

    All methods block; call them in a thread.
    """

    def __init__(self, writer: ManifestWriter, longest: int, *, is_list: bool) -> None:
        self._writer = writer
        self._elements = JsonElements(longest) if is_list else None
        self._begun = False

    @property
    def pending(self) -> int:
        """Return the number of bytes of the item that has come in part."""
        return (self._elements or self._writer).pending

    def write(self, piece: bytes) -> None:
        """Take a piece; raises MalformedRequest and TooLarge.

        The first piece may begin with a byte order mark, which is skipped.
        """
        if not self._begun:
            self._begun, piece = True, piece.removeprefix(BOM_UTF8)
        if self._elements is None:
            self._writer.write(piece)
            return
        for each in self._elements.write(piece):
            self._writer.line(each)

    def finish(self) -> None:
        """Take the end; raises MalformedRequest."""
        if self._elements is not None:
            self._elements.finish()
        self._writer.finish()
