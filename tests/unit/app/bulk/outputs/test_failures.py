"""Records of images that failed, and how only these are tried again."""

import json
from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.outputs.failures import (
    check_ended,
    failed_names,
    only_failed,
    write_failures,
    write_merged,
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
    assert [*failed_names(tmp_path / "all")] == ["b", "c"]


def test_a_retry_waits_for_the_end_of_a_command_that_replaces_the_file(tmp_path: Path) -> None:
    file, other = tmp_path / "labels.jsonl", tmp_path / "labels.jsonl.0123abcd.partial"
    (tmp_path / "labels.jsonl2.0123abcd.partial").touch()
    check_ended(file)
    other.touch()
    with pytest.raises(WrongUsage, match=str(other)):
        check_ended(file)


def test_only_images_that_failed_are_taken_in_their_order(tmp_path: Path) -> None:
    failed = lines(tmp_path / "failed", b="error", d="error")
    assert [*only_failed(iter("abcde"), str, failed)] == ["b", "d"]


def test_an_image_that_is_not_there_any_more_is_named(tmp_path: Path) -> None:
    failed = lines(tmp_path / "failed", b="error", x="error")
    with pytest.raises(WrongUsage, match=r"x of .* is not among the images"):
        list(only_failed(iter("abc"), str, failed))


def test_new_records_take_the_places_of_errors(tmp_path: Path) -> None:
    before = lines(tmp_path / "before", a="ok", b="error", c="ok", d="error")
    again = lines(tmp_path / "again", b="ok", d="error")
    write_merged(before, again, tmp_path / "merged")
    found = [("a", "ok"), ("b", "ok"), ("c", "ok"), ("d", "error")]
    assert sources(tmp_path / "merged") == found
