"""A folder of results."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.bulk.outputs.folder import ResultsFolder
from app.bulk.sources.source import Source
from models.codec import ImageFormat
from models.domain.errors import InvalidParameter


def wanted(*pairs: tuple[Source, str]) -> Iterator[tuple[Source, str]]:
    return iter(pairs)


def test_results_are_in_mirrored_folders(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "made", replaces=False)
    file = folder.write("in/a.jpg", ImageFormat.JPEG, b"pixels")
    assert file == tmp_path / "made/in/a.jpg"
    assert file.read_bytes() == b"pixels"


def test_a_source_whose_name_is_wrong_gets_the_suffix_of_its_format(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path, replaces=False)
    assert folder.write("a.png", ImageFormat.JPEG, b"").name == "a.png.jpg"


def test_a_file_is_replaced_by_force_or_by_the_run_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("mine")
    folder = ResultsFolder(tmp_path, replaces=False)
    with pytest.raises(InvalidParameter, match="add --force"):
        folder.write("a.jpg", ImageFormat.JPEG, b"new")
    assert (tmp_path / "a.jpg").read_text() == "mine"
    ResultsFolder(tmp_path, replaces=True).write("a.jpg", ImageFormat.JPEG, b"newer")
    assert (tmp_path / "a.jpg").read_bytes() == b"newer"


def test_a_name_that_is_too_long_is_the_error_of_its_image(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="cannot write"):
        ResultsFolder(tmp_path, replaces=False).write("n" * 300 + ".jpg", ImageFormat.JPEG, b"")


def test_a_full_disk_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic_file, "write", full)
    with pytest.raises(CannotWrite, match="No space left"):
        ResultsFolder(tmp_path, replaces=False).write("a.jpg", ImageFormat.JPEG, b"")


def test_a_folder_of_sources_cannot_be_that_of_results(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(WrongUsage, match="is a folder of sources"):
        ResultsFolder(tmp_path / "in" / "..", replaces=True).check([str(tmp_path)])
    (tmp_path / "file").touch()
    with pytest.raises(WrongUsage, match="is no folder"):
        ResultsFolder(tmp_path / "file", replaces=True).check([])


def test_existing_results_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").touch()
    sources = [Source("in/a.jpg", "a.jpg"), Source("in/b.jpg", "b.jpg")]
    folder = ResultsFolder(tmp_path, replaces=False)
    with pytest.raises(WrongUsage, match=r"b\.jpg exists already"):
        folder.check_targets(wanted((sources[0], "a.jpg"), (sources[1], "b.jpg")), sources)
    assert folder.check_targets(wanted((sources[0], "a.jpg")), sources[:1]) == 1


def test_force_never_replaces_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    sources = [Source(f"{tmp_path}/a.png", "a.png"), Source(f"{tmp_path}/a.jpg", "a.jpg")]
    folder = ResultsFolder(tmp_path, replaces=True)
    with pytest.raises(WrongUsage, match="would replace the source"):
        folder.check_targets(wanted((sources[0], "a.jpg"), (sources[1], "a.jpg.jpg")), sources)
    (tmp_path / "c.jpg").touch()
    assert folder.check_targets(wanted((sources[0], "c.jpg")), sources) == 1
