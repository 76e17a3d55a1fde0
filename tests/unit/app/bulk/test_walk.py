"""Which files of a folder are images, and what is told about the others."""

import io
import os
import zipfile
from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.sources import Sources
from app.bulk.walk import Choice
from tests.pictures import jpeg, png


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "IMG_1.HEIC").write_bytes(jpeg())
    (tmp_path / "scan").write_bytes(png())
    (tmp_path / "photo.backup").write_bytes(jpeg())
    (tmp_path / "claims.jpg").write_bytes(b"no image at all")
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("words")
    (tmp_path / "real.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / "again").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def names(sources: Sources, folder: Path) -> list[str]:
    return [str(Path(each.name).relative_to(folder)) for each in sources]


def test_the_content_decides_where_the_name_does_not(folder: Path) -> None:
    sources = Sources([str(folder)])
    assert names(sources, folder) == ["IMG_1.HEIC", "claims.jpg", "photo.backup", "scan"]


def test_what_is_left_out_is_told_by_reason_with_the_first_names(folder: Path) -> None:
    sources = Sources([str(folder)])
    assert sources.count() == sources.count() == 4
    assert str(sources.left_out) == (
        "9 left out; link to a folder: 1 (again); hidden: 1 (.DS_Store); "
        "no image of a format that is read (JPEG, PNG, WEBP, GIF, BMP, TIFF, AVIF): 6 "
        "(0.txt, 1.txt, 2.txt, …); hidden folder: 1 (.thumbnails)"
    )


def test_patterns_decide_alone_and_are_told_as_reasons(folder: Path) -> None:
    sources = Sources([str(folder)], Choice(["*.txt", "scan"], ["3.*"]))
    assert names(sources, folder) == ["0.txt", "1.txt", "2.txt", "scan"]
    assert "--exclude: 1 (3.txt)" in str(sources.left_out)
    assert "not of --include: 6 (.DS_Store, IMG_1.HEIC, claims.jpg, …)" in str(sources.left_out)


def test_a_folder_of_images_alone_has_nothing_to_tell(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    sources = Sources([str(tmp_path)])
    assert (sources.count(), str(sources.left_out)) == (1, "")


def test_a_folder_without_an_image_tells_why(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(WrongUsage, match=r"no image in it \(1 left out; no image of .*a\.txt"):
        Sources([str(tmp_path)]).count()


def test_members_of_archives_are_known_by_their_content_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as packed:
        packed.writestr("in/IMG_1.HEIC", jpeg())
        packed.writestr("notes.txt", "words")
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
