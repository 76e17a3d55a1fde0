import io
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from app.archives.zip_writer import ZipWriter


def written(files: dict[str, bytes], known: bool = True) -> bytes:
    """Return a ZIP of files, whose sizes are announced if `known`."""
    sink = io.BytesIO()
    with ZipWriter() as archive:
        for name, data in files.items():
            sink.write(archive.begin(name, len(data) if known else None))
            for start in range(0, len(data), 7):
                archive.add(data[start : start + 7])
                sink.write(data[start : start + 7])
            sink.write(archive.end())
        sink.writelines(archive.finish())
    return sink.getvalue()


FILES = {"a.jpg": bytes(range(100)), "猫.jpg": b"cat", "empty": b""}


@pytest.mark.parametrize("known", [True, False])
def test_zipfile_reads_what_is_written(known: bool) -> None:
    with zipfile.ZipFile(io.BytesIO(written(FILES, known))) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == FILES


def test_unzip_makes_a_folder_that_its_owner_may_open(tmp_path: Path) -> None:
    packed, out = tmp_path / "a.zip", tmp_path / "out"
    with ZipWriter() as archive, packed.open("wb") as sink:
        sink.write(archive.begin("images/", 0, padded=True) + archive.pad() + archive.end())
        sink.write(archive.begin("images/1.jpg", 0) + archive.end())
        sink.writelines(archive.finish())
    with zipfile.ZipFile(packed) as read:
        assert [each.external_attr >> 16 for each in read.infolist()] == [0o40700, 0o600]
    if unzip := shutil.which("unzip"):
        subprocess.run([unzip, "-q", packed, "-d", out], check=True)
        assert (out / "images").stat().st_mode & 0o700 == 0o700


def test_padded_members_have_their_content_alone() -> None:
    files = {"folder/": b"", "large": bytes(range(256)) * 1000, "empty": b""}
    sink = io.BytesIO()
    with ZipWriter() as archive:
        for name, data in files.items():
            sink.write(archive.begin(name, len(data), padded=True))
            sink.write(archive.pad())
            for part in (data[:99_999], data[99_999:]):
                sink.writelines(archive.content(part))
                sink.write(archive.pad())
            sink.write(archive.end())
        sink.write(archive.begin("plain"))
        sink.writelines(archive.content(b"as it is"))
        sink.write(archive.end())
        sink.writelines(archive.finish())
    with zipfile.ZipFile(sink) as found:
        assert found.testzip() is None
        assert {each: found.read(each) for each in found.namelist()} == (
            files | {"plain": b"as it is"}
        )


def test_more_than_65535_members_are_written() -> None:
    files = {str(n): b"" for n in range(65_600)}
    with zipfile.ZipFile(io.BytesIO(written(files))) as archive:
        assert archive.namelist() == list(files)


def test_members_and_offsets_beyond_2_gib_are_written() -> None:
    piece, pieces = memoryview(bytes(1 << 24)), 130
    size = len(piece) * pieces
    with ZipWriter() as archive:
        start = archive.begin("large", size)
        for _ in range(pieces):
            archive.add(piece)
        middle = archive.end() + archive.begin("small", 1)
        archive.add(b"1")
        end = archive.end() + b"".join(archive.finish())

    class Sparse(io.RawIOBase):
        """The archive as a file, of which the zeros of the large member are not kept."""

        position = 0

        def seekable(self) -> bool:
            return True

        def readable(self) -> bool:
            return True

        def tell(self) -> int:
            return self.position

        def seek(self, to: int, whence: int = 0) -> int:
            total = len(start) + size + len(tail)
            self.position = to + (0, self.position, total)[whence]
            return self.position

        def read(self, n: int = -1) -> bytes:
            skipped = self.position - len(start) - size
            if skipped >= 0:
                found = tail[skipped:] if n < 0 else tail[skipped : skipped + n]
            else:
                found = start[self.position : self.position + n]
            self.position += len(found)
            return found

    tail = middle + b"1" + end
    with zipfile.ZipFile(Sparse()) as found:
        large, small = found.infolist()
        assert (large.file_size, small.file_size) == (size, 1)
        assert small.header_offset > 1 << 31
        assert found.read("small") == b"1"
