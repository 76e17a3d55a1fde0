"""The sources that folders and patterns stand for."""

import io
from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.sources import SourceList, Sources
from app.bulk.walk import Choice


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


def test_the_copy_of_a_list_on_standard_input_has_no_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a.jpg\nb.jpg\n")))
    given = SourceList("-")
    assert [*zip(given, given, strict=True)] == [("a.jpg", "a.jpg"), ("b.jpg", "b.jpg")]
    assert [*tmp_path.iterdir()] == []


def test_a_folder_without_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="no image in it"):
        expanded([str(tmp_path)])


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_a_list_without_a_source_is_refused_as_a_folder_is(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(WrongUsage, match=r"--from: .*/list: no file or URL in it"):
        expanded([], lists=(str(tmp_path / "list"),))


def test_a_list_without_a_source_on_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(WrongUsage, match="--from: standard input: no file or URL in it"):
        expanded([], lists=("-",))


def test_a_list_has_one_source_on_each_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(f"{folder}/in\r\n\nhttps://example.org/a b.jpg\n".encode())
    assert expanded(["-"], exclude=("raw",), lists=(str(tmp_path / "list"),)) == [
        "-",
        f"{folder}/in/c.webp",
        "https://example.org/a b.jpg",
    ]


def test_a_list_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a.jpg\nb.jpg")))
    assert expanded([], lists=("-",)) == ["a.jpg", "b.jpg"]


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


def test_a_url_that_is_none_ends_nothing(folder: Path) -> None:
    names = ["http://[x/y.jpg", f"{folder}/b.jpg"]
    assert [(each.name, each.place) for each in Sources(names)] == [
        (names[0], "y.jpg"),
        (names[1], "b.jpg"),
    ]
