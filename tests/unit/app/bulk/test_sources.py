"""The sources that folders and patterns stand for."""

import gzip
import inspect
import io
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from app.bulk import contents
from app.bulk.errors import WrongUsage
from app.bulk.sources import SourceList, Sources
from app.bulk.walk import Choice, Source
from tests.pictures import jpeg, png
from tests.unit.app.archives.test_reading import tarred, zipped


def expanded(
    names: list[str],
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    lists: tuple[str, ...] = (),
    results: str | None = None,
) -> list[str]:
    sources = Sources(names, Choice(include, exclude), lists, results=results)
    return [each.name for each in sources]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jpg", "a.PNG", "notes.txt", ".hidden.jpg", "in/c.webp", "in/raw/d.tiff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "in" / "loop").symlink_to(tmp_path)
    return tmp_path


def found(folder: Path, *include: str, exclude: tuple[str, ...] = ()) -> list[str]:
    names = expanded([str(folder)], include, exclude)
    return [str(Path(each).relative_to(folder)) for each in names]


def test_a_folder_stands_for_all_its_images_in_a_fixed_order(folder: Path) -> None:
    assert found(folder) == ["a.PNG", "b.jpg", "in/c.webp", "in/raw/d.tiff"]


def test_include_and_exclude_match_names_and_paths(folder: Path) -> None:
    assert found(folder, "*.txt", "in/*") == ["notes.txt", "in/c.webp", "in/raw/d.tiff"]
    assert found(folder, exclude=("raw", "b.*")) == ["a.PNG", "in/c.webp"]


def test_files_urls_and_standard_input_stay_where_they_are(folder: Path) -> None:
    given = ["-", "https://example.org/*.jpg", str(folder / "notes.txt"), "missing.jpg"]
    assert expanded(given) == given


def test_a_pattern_stands_for_the_files_that_match(folder: Path) -> None:
    assert expanded([f"{folder}/*.jpg"]) == [f"{folder}/b.jpg"]
    (folder / "[1].jpg").touch()
    assert expanded([f"{folder}/[1].jpg"]) == [f"{folder}/[1].jpg"]


def test_a_list_on_standard_input_is_iterated_several_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a.jpg\nb.jpg\n")))
    given = SourceList("-")
    assert [*zip(given, given, strict=True)] == [("a.jpg", "a.jpg"), ("b.jpg", "b.jpg")]


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_a_list_without_a_source_is_refused_as_a_folder_is(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list").write_bytes(content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    for name, told in ((str(tmp_path / "list"), ".*/list"), ("-", "standard input")):
        with pytest.raises(WrongUsage, match=f"--from: {told}: no file or URL in it"):
            expanded([], lists=(name,))


def test_a_list_has_one_source_on_each_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(f"{folder}/in\r\n\nhttps://example.org/a b.jpg\n".encode())
    assert expanded(["-"], exclude=("raw",), lists=(str(tmp_path / "list"),)) == [
        "-",
        f"{folder}/in/c.webp",
        "https://example.org/a b.jpg",
    ]


@pytest.mark.parametrize(
    ("names", "lists", "message"),
    [
        ([], (), "name files, folders or URLs"),
        (["-"], ("-",), "only once"),
        (["a.jpg"], ("/nonexistent/list",), "--from: /nonexistent/list: No such file"),
    ],
)
def test_sources_that_cannot_be_read_are_refused(
    names: list[str], lists: tuple[str, ...], message: str
) -> None:
    with pytest.raises(WrongUsage, match=message):
        expanded(names, lists=lists)


def test_hidden_folders_are_searched_only_if_a_pattern_names_one(folder: Path) -> None:
    (folder / "in" / ".thumbnails").mkdir()
    (folder / "in" / ".thumbnails" / "small.png").touch()
    assert found(folder) == ["a.PNG", "b.jpg", "in/c.webp", "in/raw/d.tiff"]
    assert found(folder, "*.webp", "*.png") == ["in/c.webp"]
    assert found(folder, "in/.thumbnails/*") == ["in/.thumbnails/small.png"]
    assert expanded([f"{folder}/in/.thumbnails"]) == [f"{folder}/in/.thumbnails/small.png"]


def test_earlier_results_in_a_folder_are_no_sources(folder: Path) -> None:
    within = [*map(str, (folder / "a.PNG", folder / "b.jpg", folder / "in" / "c.webp"))]
    assert expanded([str(folder)], results=f"{folder}/in/raw/") == within
    assert expanded([f"{folder}/i*"], results=f"{folder}/in/../in/raw") == within[-1:]
    assert f"{folder}/in/raw/d.tiff" in expanded([str(folder)], results=f"{folder}/new/")
    assert expanded([f"{folder}/in/raw"], results=f"{folder}/in/raw") == [f"{folder}/in/raw/d.tiff"]


def test_links_that_point_at_each_other_do_not_end_the_search(folder: Path) -> None:
    for name, target in (("e.jpg", "f"), ("f", "e.jpg")):
        (folder / name).symlink_to(target)
    assert found(folder) == ["a.PNG", "b.jpg", "e.jpg", "in/c.webp", "in/raw/d.tiff"]


def test_folders_may_lie_deeper_than_calls(tmp_path: Path) -> None:
    (deep := tmp_path / "/".join("a" * 200)).mkdir(parents=True)
    (deep / "b.jpg").touch()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        assert expanded([str(tmp_path)]) == [f"{deep}/b.jpg"]
    finally:
        sys.setrecursionlimit(before)


def test_a_url_that_is_none_ends_nothing(folder: Path) -> None:
    names = ["http://[x/y.jpg", f"{folder}/b.jpg"]
    assert [(each.name, each.place) for each in Sources(names)] == [
        (names[0], "y.jpg"),
        (names[1], "b.jpg"),
    ]


def test_every_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    os.mkfifo(tmp_path / "pipe")  # it is neither opened nor read
    good = [str(tmp_path / "a.jpg"), str(tmp_path / "pipe"), "https://example.org/cat.jpg", "-"]
    Sources(good).check()
    with pytest.raises(WrongUsage) as raised:
        Sources([*good, str(tmp_path / "none.jpg"), "nul\0.jpg"]).check()
    lines = str(raised.value).split("\ndarkroom: ")
    assert lines[0] == f"{tmp_path}/none.jpg: No such file or directory"
    assert lines[1].startswith("nul")
    assert lines[2:] == ["nothing was done"]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    (tmp_path / "IMG_1.HEIC").write_bytes(jpeg())
    (tmp_path / "scan").write_bytes(png())
    (tmp_path / "photo.backup").write_bytes(jpeg())
    (tmp_path / "claims.jpg").write_bytes(b"no image at all")
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("words")
    (tmp_path / "film.mp4").write_bytes(b"\0\0\0\x18ftypisom\0\0\0\0isommp42")
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / "again").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def names(sources: Sources, folder: Path) -> list[str]:
    return [str(Path(each.name).relative_to(folder)) for each in sources]


def test_the_content_decides_where_the_name_does_not(mixed: Path) -> None:
    sources = Sources([str(mixed)])
    assert names(sources, mixed) == ["IMG_1.HEIC", "claims.jpg", "photo.backup", "scan"]


def test_what_is_left_out_is_told_by_reason_with_the_first_names(mixed: Path) -> None:
    sources = Sources([str(mixed)])
    assert sources.count() == sources.count() == 4
    assert str(sources.left_out) == (
        "9 left out; hidden: 1 (.DS_Store); "
        "no image of a format that is read (JPEG, PNG, WEBP, GIF, BMP, TIFF, AVIF, HEIF): 6 "
        "(0.txt, 1.txt, 2.txt, …); hidden folder: 1 (.thumbnails); link to a folder: 1 (again)"
    )


def test_patterns_decide_alone_and_are_told_as_reasons(mixed: Path) -> None:
    sources = Sources([str(mixed)], Choice(["*.txt", "scan"], ["3.*"]))
    assert names(sources, mixed) == ["0.txt", "1.txt", "2.txt", "scan"]
    assert "--exclude: 1 (3.txt)" in str(sources.left_out)
    assert "not of --include: 6 (.DS_Store, IMG_1.HEIC, claims.jpg, …)" in str(sources.left_out)


def test_a_folder_without_an_image_tells_why(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(WrongUsage, match=r"no image in it \(1 left out; no image of .*a\.txt"):
        Sources([str(tmp_path)]).count()


def test_members_of_archives_are_known_by_their_content_too(tmp_path: Path) -> None:
    (tmp_path / "all.zip").write_bytes(zipped({"in/IMG_1.HEIC": jpeg(), "notes.txt": b"words"}))
    sources = Sources([str(tmp_path / "all.zip")])
    assert names(sources, tmp_path) == ["all.zip/in/IMG_1.HEIC"]
    assert f"{tmp_path}/all.zip/notes.txt" in str(sources.left_out)


@pytest.mark.parametrize("separator", [b"\n", b"\0"])
def test_a_byte_order_mark_of_a_list_is_skipped(
    separator: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = b"\xef\xbb\xbf" + separator.join([b"a.jpg", b"b.jpg"])
    (tmp_path / "list").write_bytes(entries)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(entries)))
    for name in (str(tmp_path / "list"), "-"):
        found = Sources([], lists=[name], separator=separator)
        assert [each.name for each in found] == ["a.jpg", "b.jpg"]


FILES = {"a.jpg": b"one", "in/b.png": b"two", "notes.txt": b"three"}
PACKED = {"all.zip": zipped(FILES), "all.TAR.GZ": gzip.compress(tarred(FILES.items()))}


def packed(folder: Path, name: str = "all.zip") -> Path:
    """Write an archive of FILES."""
    (folder / name).write_bytes(PACKED[name])
    return folder / name


def content(source: Source, limit: int) -> contents.Content:
    assert source.load is not None
    return contents.content(source.name, partial(source.load, limit))


@pytest.mark.parametrize("name", PACKED)
def test_members_are_sources_with_their_contents(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path, name)
    sources = Sources([str(path)])
    assert not sources.are_named
    assert sources.count() == 2
    found = [(each.name, each.place) for each in sources]
    assert found == [(f"{path}/a.jpg", "a.jpg"), (f"{path}/in/b.png", "in/b.png")]
    reads = [content(each, 1 << 20) for each in sources]
    assert reads == [b"one", b"two"]


def test_members_are_chosen_like_files_of_folders(tmp_path: Path) -> None:
    sources = Sources([str(packed(tmp_path))], Choice(("in/*", "*.txt"), ("b*",)))
    assert [each.place for each in sources] == ["notes.txt"]


def test_a_member_over_the_limit_is_an_error_of_its_own(tmp_path: Path) -> None:
    sources = Sources([str(packed(tmp_path))])
    reads = [content(each, 2) for each in sources]
    assert ["has 3 bytes" in str(each) for each in reads] == [True, True]


def test_a_damaged_tar_has_the_images_before_the_damage_and_an_error(tmp_path: Path) -> None:
    path = packed(tmp_path, "all.TAR.GZ")
    path.write_bytes(path.read_bytes()[:-30])
    *_, last = (content(each, 1 << 20) for each in Sources([str(path)]))
    assert "damaged" in str(last)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.zip").write_bytes(b"")
    with pytest.raises(WrongUsage, match=r"all\.zip: .*empty"):
        Sources([str(tmp_path / "all.zip")]).count()
