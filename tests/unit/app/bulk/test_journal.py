"""A file of records that is continued after an interruption."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.journal import Journal, Origin, Records, names_in, write_failures
from app.bulk.report import readable

NAMES = ["a.jpg", "b.jpg", "c.jpg"]


def line(name: str, status: str = "ok") -> bytes:
    return json.dumps({"source": name, "status": status}).encode() + b"\n"


def opened(folder: Path, top_k: int = 5, replaces: bool = False) -> Journal:
    return Journal(folder / "out.jsonl", {"top_k": top_k}, replaces=replaces)


def interrupted(folder: Path, *records: bytes) -> Path:
    """Leave a partial file as a process that was killed does; return its path."""
    results = opened(folder)
    for each in records:
        results.add(each, failed=b"error" in each)
    results._file.close()
    (partial,) = folder.glob("*.partial")
    return partial


def test_the_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    results = opened(tmp_path)
    for name in NAMES:
        results.add(line(name), failed=False)
        assert not (tmp_path / "out.jsonl").exists()
    results.finish()
    assert [*tmp_path.iterdir()] == [tmp_path / "out.jsonl"]
    assert (tmp_path / "out.jsonl").read_bytes() == b"".join(map(line, NAMES))


@pytest.mark.parametrize(
    "rest", [line("c.jpg")[:7], b"\0" * 40 + b"\n" + line("d.jpg")], ids=["kill", "power-failure"]
)
def test_work_goes_on_after_the_last_whole_line(rest: bytes, tmp_path: Path) -> None:
    partial = interrupted(tmp_path, line("a.jpg"), line("b.jpg", "error"))
    with partial.open("ab") as file:
        file.write(rest)
    results = opened(tmp_path)
    assert (results.done, results.failed) == (2, 1)
    assert [name in results.earlier for name in NAMES] == [True, True, False]
    results.add(line("c.jpg"), failed=False)
    results.finish()
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(each)["source"] for each in lines] == NAMES


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(WrongUsage, match="add --force to replace it"):
        opened(tmp_path)
    results = opened(tmp_path, replaces=True)
    results.finish()
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_two_commands_cannot_write_the_same_file(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="another command is writing"), opened(tmp_path):
        opened(tmp_path)
    assert [*tmp_path.iterdir()] == []


class NearlyFull(io.BytesIO):
    """A file that takes at most seven bytes at a time, as a disk does whose space runs out."""

    def write(self, data: Any) -> int:
        return super().write(bytes(data[:7]))


def test_a_record_is_written_wholly_even_in_pieces(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results._file.close()
    results._file = file = NearlyFull()
    results.add(line("a.jpg"), failed=False)
    assert file.getvalue() == line("a.jpg")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (Path.mkdir, WrongUsage, "is a folder; give the name of a file in it"),
        (os.mkfifo, WrongUsage, "is no regular file"),
        (lambda path: path.symlink_to(path), CannotWrite, "link"),
        (lambda path: path.symlink_to("none/out"), WrongUsage, "there is no folder .*; make it"),
    ],
    ids=["folder", "pipe", "loop", "missing-folder"],
)
def test_a_place_that_is_no_file_is_refused_before_the_work_and_stays(
    make: Callable[[Path], None], error: type[Exception], words: str, tmp_path: Path
) -> None:
    make(tmp_path / "out.jsonl")
    with pytest.raises(error, match=words):
        opened(tmp_path, replaces=True)
    assert not (tmp_path / "out.jsonl").is_file()


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real.jsonl").write_text("old")
    (tmp_path / "out.jsonl").symlink_to("far/real.jsonl")
    opened(tmp_path, replaces=True).finish()
    assert (tmp_path / "out.jsonl").is_symlink()
    assert (tmp_path / "far" / "real.jsonl").read_text() == ""


def test_of_two_commands_that_end_together_only_one_gives_its_file_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = opened(tmp_path, top_k=1), opened(tmp_path, top_k=2)
    first.finish()
    monkeypatch.setattr(Path, "exists", lambda _path: False)  # as it was just before
    with pytest.raises(CannotWrite, match="was made meanwhile"):
        second.finish()


def test_a_finished_file_is_not_continued_under_its_second_name(tmp_path: Path) -> None:
    partial = interrupted(tmp_path, line("a.jpg"))
    os.link(partial, tmp_path / "out.jsonl")  # killed before the first name was removed
    results = opened(tmp_path, replaces=True)
    assert results.done == 0
    results.add(line("b.jpg"), failed=False)
    assert (tmp_path / "out.jsonl").read_bytes() == line("a.jpg")
    results.finish()
    assert [*tmp_path.iterdir()] == [tmp_path / "out.jsonl"]


def test_the_names_of_files_are_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("app.bulk.atomic_file.sync_folder", synced.append)
    opened(tmp_path).finish()
    assert synced == [tmp_path, tmp_path]


def test_names_that_are_not_utf_8_are_continued(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    interrupted(tmp_path, line(readable(name)))
    with opened(tmp_path) as results:
        assert name in results.earlier


NETWORK = {"network": "resnet", "weights": "ab12"}


def begun(folder: Path) -> None:
    """Leave a partial file with one record of NETWORK as a process that was killed does."""
    results = opened(folder)
    results.begin(NETWORK)
    results.add(line("a.jpg"), failed=False)
    results._file.close()


def unknown(folder: Path) -> None:
    """Leave a partial file of a network that is not known."""
    interrupted(folder, line("a.jpg"))


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        (begun, r"another network .*: weights cd34 \(was ab12\);"),
        (unknown, "so it is not known what made"),
    ],
)
def test_records_of_two_networks_are_not_mixed(
    begins: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    begins(tmp_path)
    with pytest.raises(WrongUsage, match=words), opened(tmp_path) as results:
        results.begin(NETWORK | {"weights": "cd34"})
    (partial,) = tmp_path.glob("*.partial")
    assert partial.read_bytes() == line("a.jpg")


def test_a_run_without_records_may_be_followed_by_another_network(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.begin(NETWORK)
    results._file.close()
    results = opened(tmp_path)
    results.begin(NETWORK | {"weights": "cd34"})
    results.__exit__(WrongUsage, WrongUsage(), None)
    assert [*tmp_path.iterdir()] == []


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


def test_an_image_that_is_not_there_any_more_is_named(tmp_path: Path) -> None:
    recorded = names_in(lines(tmp_path / "some", a="ok", b="error", x="error"), failed=True)
    origin = Origin(tmp_path / "some", {}, "--retry-failed")
    origin.check_present(["b", "x"], "abcx")
    with pytest.raises(WrongUsage, match=r"some has records of 1 images .* any more \(x\); name"):
        origin.check_present(recorded, "bc")


def test_of_two_records_of_an_image_the_later_one_counts(tmp_path: Path) -> None:
    before = lines(tmp_path / "before", a="ok", b="error", c="ok", d="error")
    again = lines(tmp_path / "again", d="error", b="ok")
    found = Records([before, again])
    assert [found.failed(name) for name in "abcdx"] == [False, False, False, True, False]
    found.write("xabdc", tmp_path / "merged")
    assert sources(tmp_path / "merged") == [("a", "ok"), ("b", "ok"), ("d", "error"), ("c", "ok")]
