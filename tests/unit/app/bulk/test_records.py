"""Records that are found by the names of their images, and those of images that failed."""

import json
from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.journal import (
    Records,
    check_ended,
    check_present,
    write_failures,
)


def lines(path: Path, **statuses: str) -> Path:
    records = ({"source": name, "status": status} for name, status in statuses.items())
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def sources(path: Path) -> list[tuple[str, str]]:
    records = map(json.loads, path.read_text().splitlines())
    return [(each["source"], each["status"]) for each in records]


def test_only_errors_are_kept(tmp_path: Path) -> None:
    write_failures(lines(tmp_path / "all", a="ok", b="error", c="error"), tmp_path / "failed")
    assert sources(tmp_path / "failed") == [("b", "error"), ("c", "error")]


def test_a_retry_waits_for_the_end_of_a_command_that_replaces_the_file(tmp_path: Path) -> None:
    file, other = tmp_path / "labels.jsonl", tmp_path / "labels.jsonl.0123abcd.partial"
    (tmp_path / "labels.jsonl2.0123abcd.partial").touch()
    check_ended(file)
    other.touch()
    with pytest.raises(WrongUsage, match=str(other)):
        check_ended(file)


def test_an_image_that_is_not_there_any_more_is_named(tmp_path: Path) -> None:
    failed = lines(tmp_path / "failed", b="error", x="error")
    assert check_present(failed, "abcx") == 2
    with pytest.raises(WrongUsage, match=r"x of .* is not among the images"):
        check_present(failed, "abc")


def test_of_two_records_of_an_image_the_later_one_counts(tmp_path: Path) -> None:
    before = lines(tmp_path / "before", a="ok", b="error", c="ok", d="error")
    again = lines(tmp_path / "again", d="error", b="ok")
    found = Records([before, again])
    assert [found.failed(name) for name in "abcdx"] == [False, False, False, True, False]
    found.write("xabdc", tmp_path / "merged")
    assert sources(tmp_path / "merged") == [("a", "ok"), ("b", "ok"), ("d", "error"), ("c", "ok")]


def test_records_have_the_positions_that_their_images_have_now(tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.write_text('{"index":7,"source":"a","status":"ok"}\n{"index":8,"source":"b","sta')
    Records([torn]).write("ba", tmp_path / "written")
    assert (tmp_path / "written").read_text() == '{"index":1,"source":"a","status":"ok"}\n'
