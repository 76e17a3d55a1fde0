"""What `darkroom filter -o` refuses before anything is started, and where it writes."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.cli.commands.targets import Target, check, format_of, name_for, target_of, write
from models.codec import ImageFormat
from tests.pictures import jpeg, png


def as_source(source: ImageFormat) -> ImageFormat:
    return source


def as_webp(_source: ImageFormat) -> ImageFormat:
    return ImageFormat.WEBP


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(jpeg())
    (tmp_path / "in" / "b.dat").write_bytes(png())
    return [str(tmp_path / "in" / "a.jpg"), str(tmp_path / "in" / "b.dat")]


def test_a_name_with_a_slash_and_a_name_for_several_files_are_folders(tmp_path: Path) -> None:
    edges = str(tmp_path / "edges")
    assert target_of(f"{edges}/", 1, False).is_folder
    assert target_of(f"{edges}.png/", 1, False).is_folder
    assert target_of(edges, 2, False).is_folder
    assert target_of(str(tmp_path), 1, False).is_folder
    assert not target_of(edges, 1, False).is_folder


@pytest.mark.parametrize("output", ["-", "all.png", "taken"])
def test_several_files_go_into_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(WrongUsage, match="no folder, and there are 2 files"):
        target_of(output, 2, True)


def test_a_missing_folder_is_made_with_its_parents_when_the_first_result_is_there(
    tmp_path: Path, sources: list[str]
) -> None:
    target = target_of(f"{tmp_path}/new/edges/", 2, False)
    check(target, sources, as_source)
    assert not (tmp_path / "new").exists(), "made before there is a result"
    write(target, name_for(sources[1], ImageFormat.PNG), b"picture")
    assert (tmp_path / "new" / "edges" / "b.png").read_bytes() == b"picture"


@pytest.mark.parametrize(
    ("there", "chosen"), [("a.jpg", as_source), ("b.png", as_source), ("b.webp", as_webp)]
)
def test_an_existing_result_is_refused_before_the_start_by_the_format_it_will_have(
    tmp_path: Path, sources: list[str], there: str, chosen: Callable[[ImageFormat], ImageFormat]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / there).write_bytes(b"mine")
    with pytest.raises(WrongUsage, match=rf"{there} exists already; .* --force"):
        check(target_of(f"{tmp_path}/out/", 2, False), sources, chosen)
    check(target_of(f"{tmp_path}/out/", 2, True), sources, chosen)


def test_an_existing_file_is_replaced_only_when_that_is_asked_for(
    tmp_path: Path, sources: list[str]
) -> None:
    out = tmp_path / "out.png"
    out.write_bytes(b"mine")
    with pytest.raises(WrongUsage, match="--force"):
        check(target_of(str(out), 1, False), sources[:1], as_source)
    with pytest.raises(CannotWrite, match="--force"):
        write(target_of(str(out), 1, False), "", b"new")
    assert out.read_bytes() == b"mine"
    check(target_of(str(out), 1, True), sources[:1], as_source)
    write(target_of(str(out), 1, True), "", b"new")
    assert out.read_bytes() == b"new"


@pytest.mark.parametrize("output", ["in/a.jpg", "in/", "link.jpg", "other/../in/a.jpg"])
def test_a_source_is_never_replaced(tmp_path: Path, sources: list[str], output: str) -> None:
    (tmp_path / "link.jpg").symlink_to(sources[0])
    (tmp_path / "other").mkdir()
    with pytest.raises(WrongUsage, match="one of the sources"):
        check(target_of(f"{tmp_path}/{output}", 1, True), sources[:1], as_source)


def test_two_sources_of_one_name_are_refused_in_a_folder(tmp_path: Path) -> None:
    target = target_of(f"{tmp_path}/out/", 2, True)
    with pytest.raises(WrongUsage, match="the same name"):
        check(target, ["http://one.example/a.png", "http://two.example/a.png"], as_source)


def test_a_suffix_that_is_not_written_is_taken_only_with_a_format(
    tmp_path: Path, sources: list[str]
) -> None:
    target = target_of(f"{tmp_path}/out.gif", 1, False)
    assert format_of(target) is None
    with pytest.raises(WrongUsage, match=r"\.gif is no output format; use \.jpg, \.png"):
        check(target, sources[:1], as_source)
    check(target, sources[:1], as_webp)


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        ("none/c.png", WrongUsage, "there is no folder .*/none; make it"),
        ("file/", CannotWrite, "Not a directory"),
        ("loop.png", CannotWrite, r"loop\.png"),
    ],
)
def test_a_place_that_cannot_be_is_named(
    tmp_path: Path, sources: list[str], output: str, error: type[Exception], words: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    with pytest.raises(error, match=words):
        check(target_of(f"{tmp_path}/{output}", 1, False), sources[:1], as_source)


def test_a_place_that_cannot_be_written_to_is_named_before_the_start(
    tmp_path: Path, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(_folder: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(atomic_file, "check_writable", read_only)
    for output in (f"{tmp_path}/c.png", f"{tmp_path}/new/folder/"):
        with pytest.raises(CannotWrite, match=f"{tmp_path}: Read-only file system"):
            check(target_of(output, 1, False), sources[:1], as_source)


def test_a_full_disk_names_the_file_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: bytes, **_options: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_file, "write", full)
    with pytest.raises(CannotWrite, match=r"a\.png: No space left on device"):
        write(Target(tmp_path, True, False), "a.png", b"picture")
