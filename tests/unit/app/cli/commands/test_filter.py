"""`darkroom filter` with a folder or a ZIP of results: what it may replace, and what goes on."""

import errno
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest

from app.bulk import contents, engine
from app.bulk import folder as results
from app.bulk.journal import Journal
from app.bulk.walk import Task
from app.bulk.work import Filtering, Finished, failure
from app.cli.parser import run
from darkroom_client import FilteredImage, ImageResult
from models.codec import ImageFormat
from models.domain.errors import UnsupportedMedia
from models.exit_codes import ExitCode
from tests.pictures import jpeg


class Copying:
    """Engine that answers with each JPEG as it is, and with an error for any other file."""

    identity = None
    ends_after = 99

    def __init__(self, _settings: object, work: Filtering, _servers: object, _total: int) -> None:
        self._work = work

    def answers(self, tasks: Iterator[Task]) -> Iterator[list[Finished]]:
        """Yield the answers one by one."""
        for number, task in enumerate(tasks):
            if number == self.ends_after:
                raise KeyboardInterrupt
            load = task.source.load and partial(task.source.load, 1 << 20)
            data = contents.content(task.source.name, load)
            assert isinstance(data, bytes)
            kind = self._work.version.format.of(ImageFormat.JPEG)
            image = FilteredImage(f"image/{kind}", 1, 1, len(data), data)
            result = ImageResult(index=0, status="ok", image=image)
            if data[:2] != b"\xff\xd8":
                result = failure(UnsupportedMedia("no image"))
            yield [self._work.finished(task, result)]

    def close(self) -> None:
        """There is nothing to end."""

    kill = close


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer without a server."""
    monkeypatch.setattr(engine, "start", Copying)


def test_a_command_that_was_stopped_while_it_checked_replaces_nothing_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("photos", "made"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(jpeg())
    (tmp_path / "made/a.jpg").write_text("mine")
    words = ["filter", f"{tmp_path}/photos", "--op", "invert", "--out", f"{tmp_path}/made"]
    words += ["--gpus", "0"]

    def stopped(*_: object, **_named: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(results, "check_targets", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(words)
    assert run(words) == ExitCode.WRONG_USAGE
    assert "exists already" in capfd.readouterr().err
    assert (tmp_path / "made/a.jpg").read_text() == "mine"


def photos(folder: Path) -> Path:
    """Make a folder of four sources, of which one is no image."""
    made = folder / "photos"
    (made / "more").mkdir(parents=True)
    for number, name in enumerate(("a.jpg", "b é.jpg", "more/c.jpg")):
        (made / name).write_bytes(jpeg(number, 60, 40))
    (made / "more/d.jpg").write_text("no image")
    return made


def filtered(sources: Path, out: Path, *more: str) -> int:
    return run(["filter", str(sources), "--op", "invert", "--out", str(out), "--gpus", "0", *more])


def members(archive: Path) -> dict[str, bytes]:
    with ZipFile(archive) as opened:
        assert opened.testzip() is None
        return {each: opened.read(each) for each in opened.namelist()}


def test_the_results_of_a_folder_are_in_a_folder_even_of_one_image(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(jpeg())
    assert filtered(tmp_path / "photos", tmp_path / "made") == ExitCode.OK
    assert [each.name for each in (tmp_path / "made").iterdir()] == ["a.jpg"]


def test_filtering_that_was_stopped_goes_on_and_redoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, made = photos(tmp_path), tmp_path / "made"
    with monkeypatch.context() as patch:
        patch.setattr(Copying, "ends_after", 2)
        patch.setattr(os, "_exit", exited)
        with pytest.raises(SystemExit):
            filtered(sources, made)
    assert "the same command goes on" in capfd.readouterr().err
    times = {each: each.stat().st_mtime_ns for each in made.rglob("*.jpg")}
    assert len(times) == 2
    assert filtered(sources, made) == ExitCode.FAILED
    assert "4 images, 2 of them by an earlier run, 1 failed" in capfd.readouterr().err
    assert filtered(sources, made) == ExitCode.FAILED  # the image that failed is tried again
    assert "3 of them by an earlier run, 1 failed; 1 in" in capfd.readouterr().err
    assert {each: each.stat().st_mtime_ns for each in times} == times
    (record,) = map(json.loads, (tmp_path / "made.failed.jsonl").read_text().splitlines())
    assert (record["index"], record["file"]) == (3, str(made / "more" / "d.jpg"))


def exited(code: int) -> None:
    raise SystemExit(code)


def test_a_zip_has_the_files_of_a_folder_of_results(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, archive = photos(tmp_path), tmp_path / "made.zip"
    assert filtered(sources, tmp_path / "made") == ExitCode.FAILED
    assert filtered(sources, archive) == ExitCode.FAILED
    results = sorted(each for each in (tmp_path / "made").rglob("*") if each.is_file())
    expected = {str(each.relative_to(tmp_path / "made")): each.read_bytes() for each in results}
    assert members(archive) == expected
    (record,) = map(json.loads, (tmp_path / "made.zip.failed.jsonl").read_text().splitlines())
    assert record["source"] == str(sources / "more/d.jpg")
    left = {each.name for each in tmp_path.iterdir()}
    before = {"photos", "made", "made.failed.jsonl", "made.failed.jsonl.origin.json"}
    assert left == {*before, "made.zip", "made.zip.failed.jsonl"}
    capfd.readouterr()
    assert filtered(sources, archive) == ExitCode.WRONG_USAGE
    assert "exists already" in capfd.readouterr().err
    assert filtered(sources, archive, "--retry-failed") == ExitCode.WRONG_USAGE
    (sources / "more/d.jpg").unlink()
    assert filtered(sources, archive, "--force") == ExitCode.OK
    assert not (tmp_path / "made.zip.failed.jsonl").exists()


def test_a_zip_that_could_not_be_packed_is_packed_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, archive = photos(tmp_path), tmp_path / "made.zip"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(results, "ZipFile", full)
        assert filtered(sources, archive) == ExitCode.CANNOT_WRITE
    assert "No space left on device; the same command goes on" in capfd.readouterr().err
    assert not archive.exists()
    assert filtered(sources, tmp_path / "made.zip", "--format", "png") == ExitCode.WRONG_USAGE
    assert "results of a command with other arguments" in capfd.readouterr().err
    assert filtered(sources, archive) == ExitCode.FAILED
    assert "4 images, 4 of them by an earlier run, 1 failed" in capfd.readouterr().err
    assert sorted(members(archive)) == ["a.jpg", "b é.jpg", "more/c.jpg"]
    assert {each.name for each in tmp_path.iterdir()} == {
        "photos",
        "made.zip",
        "made.zip.failed.jsonl",
    }


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_command_that_goes_on_replaces_no_zip_that_was_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, archive = photos(tmp_path), tmp_path / "made.zip"
    with monkeypatch.context() as patch:
        patch.setattr(results, "ZipFile", stopped)
        with pytest.raises(KeyboardInterrupt):
            filtered(sources, archive)
    archive.write_text("mine")
    assert filtered(sources, archive) == ExitCode.CANNOT_WRITE
    assert "was made meanwhile" in capfd.readouterr().err
    assert archive.read_text() == "mine"
    assert filtered(sources, archive, "--force") == ExitCode.FAILED
    assert sorted(members(archive)) == ["a.jpg", "b é.jpg", "more/c.jpg"]


def test_a_command_that_was_stopped_when_its_zip_was_there_leaves_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, archive = photos(tmp_path), tmp_path / "made.zip"
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            filtered(sources, archive)
    before = archive.stat()
    assert filtered(sources, archive) == ExitCode.FAILED
    after = archive.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"photos", "made.zip", "made.zip.failed.jsonl"}


def test_a_zip_of_sources_is_never_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "photos.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("a.jpg", jpeg())
    before = archive.read_bytes()
    assert filtered(archive, archive, "--force") == ExitCode.WRONG_USAGE
    assert "would replace the source" in capfd.readouterr().err
    assert archive.read_bytes() == before
    assert filtered(archive, tmp_path / "made.zip") == ExitCode.OK
    assert [*members(tmp_path / "made.zip")] == ["a.jpg"]


def test_a_retry_of_other_filters_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, made = photos(tmp_path), tmp_path / "made"
    assert filtered(sources, made) == ExitCode.FAILED
    (sources / "more/d.jpg").write_bytes(jpeg())
    words = ["filter", str(sources), "--op", "sepia", "--out", str(made), "--gpus", "0"]
    assert run([*words, "--retry-failed"]) == ExitCode.WRONG_USAGE
    assert "was made with other options: ops" in capfd.readouterr().err
    assert filtered(sources, made, "--retry-failed") == ExitCode.OK
    assert (made / "more/d.jpg").exists()
    assert {each.name for each in tmp_path.iterdir()} == {
        "photos",
        "made",
        "made.failed.jsonl.origin.json",
    }


def test_a_retry_before_the_end_of_the_first_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, made = photos(tmp_path), tmp_path / "made"
    assert filtered(sources, made, "--retry-failed") == ExitCode.WRONG_USAGE
    assert "has no results" in capfd.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            filtered(sources, made)
    capfd.readouterr()
    assert filtered(sources, made, "--retry-failed") == ExitCode.WRONG_USAGE
    assert "has not ended" in capfd.readouterr().err
    assert filtered(sources, made) == ExitCode.FAILED
    (sources / "more/d.jpg").write_bytes(jpeg())
    assert filtered(sources, made, "--retry-failed") == ExitCode.OK
    assert filtered(sources, made, "--retry-failed") == ExitCode.OK


def test_a_folder_that_has_grown_goes_on_with_what_is_new(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sources, made = photos(tmp_path), tmp_path / "made"
    (sources / "more/d.jpg").unlink()
    (sources / "b é.jpg").rename(sources / "b.png")
    assert filtered(sources, made) == ExitCode.OK
    before = {each: each.stat().st_mtime_ns for each in made.rglob("*.jpg")}
    (sources / "new.jpg").write_bytes(jpeg(3, 60, 40))
    (sources / "b.jpg").write_bytes(jpeg(4, 60, 40))
    assert filtered(sources, made) == ExitCode.OK
    assert "5 images, 3 of them by an earlier run, 0 failed" in capfd.readouterr().err
    assert len([*made.rglob("*.jpg")]) == 5
    assert {each: each.stat().st_mtime_ns for each in before} == before, "computed twice"
    anew = tmp_path / "anew"
    assert filtered(sources, anew) == ExitCode.OK
    for each in anew.rglob("*.jpg"):
        assert (made / each.relative_to(anew)).read_bytes() == each.read_bytes()
    assert filtered(sources, made, "--quality", "50") == ExitCode.WRONG_USAGE
    assert "other options: quality 50 (was None); " in capfd.readouterr().err


def test_a_result_whose_name_a_new_image_takes_is_replaced(tmp_path: Path) -> None:
    sources, made = photos(tmp_path), tmp_path / "made"
    (sources / "b é.jpg").rename(sources / "a.tif")
    (sources / "a.jpg").unlink()
    words = ("--format", "png")
    filtered(sources, made, *words)
    first = (made / "a.png").read_bytes()
    (sources / "a.jpg").write_bytes(jpeg(5, 60, 40))
    filtered(sources, made, *words)
    assert (made / "a.tif.png").read_bytes() == first
    assert (made / "a.png").read_bytes() != first
