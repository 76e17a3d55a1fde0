"""Manifests of jobs are read however they are cut, with a byte order mark or without."""

from contextlib import closing
from pathlib import Path

import pytest

from app.jobs.manifest import ManifestWriter, read
from app.jobs.receiving import ManifestParser


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    ("manifest", "is_list"),
    [(b'{"url": "a"}\n{"url": "b"}\n', False), (b'[{"url": "a"}, {"url": "b"}]', True)],
)
def test_a_byte_order_mark_is_skipped(
    manifest: bytes, is_list: bool, mark: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "manifest"
    with closing(ManifestWriter(path, 10, 1000)) as writer:
        parser = ManifestParser(writer, 1000, is_list=is_list)
        parser.write(mark + manifest[:5])
        parser.write(manifest[5:])
        parser.finish()
        (span,) = writer.spans
    assert [line.url for line in read(path, span)] == ["a", "b"]
