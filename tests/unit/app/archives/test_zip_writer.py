import io
import zipfile

import pytest

from app.archives import zip_writer
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


def test_large_members_and_offsets_are_written_as_zip64(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (zip_writer, zipfile):
        monkeypatch.setattr(each, "ZIP64_LIMIT", 99)
    data = written({"large": bytes(100), "small": b"1"})
    assert data.count(b"PK\x06\x06") == data.count(b"PK\x06\x07") == 1
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        large, small = found.infolist()
        assert (large.file_size, small.file_size) == (100, 1)
        assert small.header_offset > 100
        assert found.testzip() is None
