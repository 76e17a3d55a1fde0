import io
import zipfile

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


@pytest.mark.slow
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
