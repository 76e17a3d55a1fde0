"""Images in ZIP and TAR archives."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from app.bulk import contents
from app.bulk.errors import WrongUsage
from app.bulk.sources import Sources
from app.bulk.walk import Choice

FILES = {"a.jpg": b"one", "in/b.png": b"two", "notes.txt": b"three"}


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(("make", "name"), [(zipped, "all.zip"), (tarred, "all.TAR.GZ")])
def test_members_are_sources_with_their_contents(make: object, name: str, tmp_path: Path) -> None:
    assert callable(make)
    path = make(tmp_path / name)
    sources = Sources([str(path)])
    assert not sources.are_named
    assert sources.count() == 2
    found = [(each.name, each.place) for each in sources]
    assert found == [(f"{path}/a.jpg", "a.jpg"), (f"{path}/in/b.png", "in/b.png")]
    reads = [contents.content(each, 1 << 20) for each in sources]
    assert reads == [b"one", b"two"]


def test_members_are_chosen_like_files_of_folders(tmp_path: Path) -> None:
    sources = Sources([str(zipped(tmp_path / "all.zip"))], Choice(("in/*", "*.txt"), ("b*",)))
    assert [each.place for each in sources] == ["notes.txt"]


def test_a_member_over_the_limit_is_an_error_of_its_own(tmp_path: Path) -> None:
    sources = Sources([str(zipped(tmp_path / "all.zip"))])
    reads = [contents.content(each, 2) for each in sources]
    assert ["has 3 bytes" in str(each) for each in reads] == [True, True]


def test_a_damaged_tar_has_the_images_before_the_damage_and_an_error(tmp_path: Path) -> None:
    path = tarred(tmp_path / "all.tar.gz")
    path.write_bytes(path.read_bytes()[:-30])
    *_, last = (contents.content(each, 1 << 20) for each in Sources([str(path)]))
    assert "damaged" in str(last)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.zip").write_bytes(b"")
    with pytest.raises(WrongUsage, match=r"all\.zip: .*empty"):
        Sources([str(tmp_path / "all.zip")]).count()
