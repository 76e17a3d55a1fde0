"""The places of results: a file, a folder that mirrors the sources, and a ZIP."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.bulk import atomic_file, folder, journal
from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.folder import Places, ResultFile, ResultsFolder, check_targets
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import InvalidParameter

JPEG = ImageFormat.JPEG


def as_source(source: ImageFormat) -> ImageFormat:
    return source


def failing(number: int) -> Callable[..., None]:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_results_are_in_mirrored_folders_with_the_suffix_of_their_format(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "made", replaces=False)
    file = results.write(f"{tmp_path}/made/in/a.jpg", JPEG, b"pixels")
    assert file == f"{tmp_path}/made/in/a.jpg"
    assert Path(file).read_bytes() == b"pixels"
    assert results.write(f"{tmp_path}/made/a.png", JPEG, b"") == f"{tmp_path}/made/a.png.jpg"


def test_a_file_is_replaced_by_force_or_by_the_run_that_made_it(tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_text("mine")
    with pytest.raises(InvalidParameter, match="add --force"):
        ResultsFolder(tmp_path, replaces=False).write(str(file), JPEG, b"new")
    with pytest.raises(CannotWrite, match="--force"):
        ResultFile(file, replaces=False).write("", JPEG, b"new")
    assert file.read_text() == "mine"
    ResultsFolder(tmp_path, replaces=True).write(str(file), JPEG, b"newer")
    assert file.read_bytes() == b"newer"
    ResultFile(file, replaces=True).write("", JPEG, b"newest")
    assert file.read_bytes() == b"newest"


def test_a_name_that_is_too_long_is_the_error_of_its_image(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="cannot write"):
        ResultsFolder(tmp_path, False).write(f"{tmp_path}/{'n' * 300}.jpg", JPEG, b"")


def test_a_full_disk_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file, "write", failing(errno.ENOSPC))
    for results in (ResultsFolder(tmp_path, False), ResultFile(tmp_path / "a.jpg", False)):
        with pytest.raises(CannotWrite, match=r"a\.jpg: No space left"):
            results.write(f"{tmp_path}/a.jpg", JPEG, b"")


def test_a_folder_of_sources_cannot_be_that_of_results(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(WrongUsage, match="is a folder of sources"):
        ResultsFolder(tmp_path / "in" / "..", replaces=True).check([str(tmp_path)])
    (tmp_path / "file").touch()
    with pytest.raises(WrongUsage, match="is no folder"):
        ResultsFolder(tmp_path / "file", replaces=True).check([])


def test_existing_results_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").touch()
    sources, targets = ["in/a.jpg", "in/b.jpg"], [f"{tmp_path}/a.jpg", f"{tmp_path}/b.jpg"]
    with pytest.raises(WrongUsage, match=r"b\.jpg exists already"):
        check_targets(targets, sources, replaces=False)
    check_targets(targets[:1], sources[:1], replaces=False)


def test_force_never_replaces_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    sources = [f"{tmp_path}/a.png", f"{tmp_path}/a.jpg"]
    for replaces in (True, False):  # the message must not tell to add --force
        with pytest.raises(WrongUsage, match="would replace the source"):
            check_targets([f"{tmp_path}/a.jpg"], sources, replaces=replaces)
    (tmp_path / "c.jpg").touch()
    check_targets([f"{tmp_path}/c.jpg"], sources, replaces=True)
    (tmp_path / "link.jpg").symlink_to("a.jpg")
    for name in ("a.jpg", "link.jpg", "in/../a.jpg"):
        (tmp_path / "in").mkdir(exist_ok=True)
        with pytest.raises(WrongUsage, match="would replace the source"):
            ResultFile(tmp_path / name, True).check(f"{tmp_path}/a.jpg", as_source)


def test_a_suffix_that_is_not_written_is_taken_only_with_a_format(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "out.bmp", False)
    with pytest.raises(WrongUsage, match=r"\.bmp is no output format; use \.gif, \.jpg"):
        file.check("a.jpg", as_source)
    file.check("a.jpg", lambda _source: ENCODABLE[0])


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        ("none/c.png", WrongUsage, "there is no folder .*/none; make it"),
        ("loop.png", CannotWrite, r"loop\.png"),
        ("mine.png", WrongUsage, r"mine\.png exists already; .* --force"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_before_the_start(
    tmp_path: Path, output: str, error: type[Exception], words: str
) -> None:
    (tmp_path / "mine.png").touch()
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    with pytest.raises(error, match=words):
        ResultFile(tmp_path / output, False).check("a.jpg", as_source)


def test_a_place_that_cannot_be_written_to_is_named_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "TemporaryFile", failing(errno.EROFS))
    with pytest.raises(CannotWrite, match=f"{tmp_path}: Read-only file system"):
        ResultFile(tmp_path / "c.png", False).check("a.jpg", as_source)
    with pytest.raises(CannotWrite, match=f"{tmp_path}: Read-only file system"):
        ResultsFolder(tmp_path / "new/folder", False).check([])


@pytest.mark.parametrize(
    ("places", "format_", "names"),
    [
        ("a.jpg in/deep/b.png", None, "a.jpg in/deep/b.png"),
        ("a.jpeg b.gif c.bmp", None, "a.jpg b.png c.png"),
        ("a.jpg in/b.png", ImageFormat.WEBP, "a.webp in/b.webp"),
        ("a.jpg a.png in/a.png", ImageFormat.WEBP, "a.webp a.png.webp in/a.webp"),
        (
            "a.jpg b.jpg a.jpg a.jpg a.jpg",
            None,
            "a.jpg b.jpg a.jpg.jpg a.jpg.2.jpg a.jpg.3.jpg",
        ),
        ("in/a.jpg b.jpg in/a.jpg", None, "in/a.jpg b.jpg in/a.jpg.jpg"),
    ],
)
def test_names_of_results_mirror_folders_and_differ(
    places: str, format_: ImageFormat | None, names: str
) -> None:
    chosen = Places(Path("made"), format_)
    found = [chosen.target(place) for place in places.split()]
    assert found == [f"made/{each}" for each in names.split()]


def test_a_gif_keeps_its_suffix_where_all_its_frames_are_filtered() -> None:
    assert Places(Path("made"), None, animated=True).target("in/a.gif") == "made/in/a.gif"


@pytest.mark.parametrize(
    ("goes_on", "told"), [(True, "has not ended; start that one again"), (False, "no command")]
)
def test_a_folder_in_the_place_of_collected_results_is_told_and_kept(
    tmp_path: Path, goes_on: bool, told: str
) -> None:
    archive = tmp_path / "made.zip"
    folder.collected(archive).mkdir()
    if goes_on:
        (tmp_path / f"{journal.beside(archive).name}.0123abcd.partial").touch()
    with pytest.raises(WrongUsage, match=told):
        folder.check_zip(archive, [], replaces=True)
    assert folder.collected(archive).is_dir()
