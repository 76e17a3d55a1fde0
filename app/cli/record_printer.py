"""Print the records of a command that writes no file of records."""

from collections.abc import Callable, Mapping
from typing import TextIO

from app.bulk.engines.engine import Finished
from app.bulk.report import file_of, human_line, record_of
from app.system.terminal import has_colours, is_terminal


class RecordPrinter:
    """Sink that writes records to a stream: for people on a terminal, else JSON Lines."""

    def __init__(self, stream: TextIO, write: Callable[[str], object], *, as_json: bool) -> None:
        """`write` takes the text for `stream`; with `as_json` a terminal gets JSON too."""
        self._write = write
        self._for_people = is_terminal(stream) and not as_json
        self._colours = has_colours(stream)

    def begin(self, _identity: Mapping[str, object] | None) -> None:
        """Do nothing: printed records are never continued."""

    def keep(self, finished: list[Finished]) -> None:
        """Write records."""
        for each in finished:
            text = each.line.decode()
            if self._for_people:
                record, file = record_of(each.line), file_of(each.line)
                text = human_line(record, file, colours=self._colours)
            self._write(text)
