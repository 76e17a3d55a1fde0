"""Records on a stream: JSON for programs, words for people on a terminal."""

import io
import json
from typing import Any

import pytest

from app.bulk.engines.engine import Finished
from app.cli import record_printer
from app.cli.record_printer import RecordPrinter

RECORD: dict[str, Any] = {
    "index": 0,
    "source": "a.jpg",
    "status": "ok",
    "image": {"media_type": "image/png", "width": 3, "height": 2, "bytes": 70},
    "file": "out/a.png",
}
LINE = json.dumps(RECORD).encode() + b"\n"


def printed(*, as_json: bool) -> str:
    stream = io.StringIO()
    RecordPrinter(stream, stream.write, as_json=as_json).keep([Finished(LINE, failed=False)])
    return stream.getvalue()


def test_a_stream_that_is_no_terminal_gets_the_record_as_it_is() -> None:
    assert printed(as_json=False) == LINE.decode()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_gets_words_unless_json_is_asked_for(
    as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_printer, "is_terminal", lambda _: True)
    words = "a.jpg → out/a.png  3 × 2, 70 bytes\n"
    assert printed(as_json=as_json) == (LINE.decode() if as_json else words)
