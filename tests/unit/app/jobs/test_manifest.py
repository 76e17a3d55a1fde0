"""Manifests: their chunks, and the lines that are refused."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from app.jobs.manifest import LARGEST, ManifestWriter, StoredLine, read
from models import threads
from models.domain.errors import MalformedRequest, TooLarge


def written(path: Path, body: bytes, most: int = 1000) -> tuple[list[list[StoredLine]], int]:
    """Return the items of each chunk of a manifest, and their number."""
    (sent := path.with_name("sent")).write_bytes(body)
    with closing(ManifestWriter(path, most)) as writer:
        writer.read(sent)
        writer.finish()
        return [read(path, span) for span in writer.spans], writer.total


def test_chunks_are_runs_of_lines_and_smaller_with_much_data(tmp_path: Path) -> None:
    body = b"".join(b'{"url": "https://e.org/%d"}\n' % n for n in range(150))
    chunks, total = written(tmp_path / "m", body)
    assert [len(each) for each in chunks] == [32, 32, 32, 32, 22]
    urls = [line.url for chunk in chunks for line in chunk]
    assert urls == [f"https://e.org/{n}" for n in range(total)]
    chunks, _ = written(tmp_path / "m", b'{"data": "%s"}\n' % (b"A" * 1_000_000) * 20)
    assert [len(each) for each in chunks] == [8, 8, 4]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    "body", [b'{"url": "a"}\n{"url": "b"}\n', b' \n[{"url": "a"},\n {"url": "b"}]']
)
def test_a_manifest_is_lines_or_a_list_with_a_byte_order_mark_or_without(
    tmp_path: Path, body: bytes, mark: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads get the interpreter's lock between any two items."""
    pauses = list[float]()
    monkeypatch.setattr(threads, "STEP", 0.0)
    monkeypatch.setattr(time, "sleep", pauses.append)
    ((one, other),), _ = written(tmp_path / "m", mark + body)
    assert (one.url, other.url, len(pauses)) == ("a", "b", 2)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[", "not a JSON object"),
        (b'[{"url": "a"}, 7]', "line 2 of the manifest: Expected `object`, got `int`"),
        (b'[{"url": "a"}, {"url": 7}]', "line 2 of the manifest: Expected `str | null`"),
        (b'[{"url": "a"}, {"id": "b"}]', "line 2 of the manifest: exactly one of"),
        (b'[{"url": "a"}]]', "not a JSON object"),
        (b"[" * 60_000, "not a JSON object"),
        (b"[]", "has no item"),
        (b"7", "line 1 of the manifest: Expected `object`"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path: Path, body: bytes, text: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        written(tmp_path / "m", body)
    assert text in caught.value.detail


def test_a_long_list_is_refused_with_the_form_to_use(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="send it as JSON Lines"):
        written(tmp_path / "m", b"[" + b" " * LARGEST + b"]")


def test_the_last_line_needs_no_line_end_and_empty_lines_are_no_items(tmp_path: Path) -> None:
    chunks, total = written(tmp_path / "m", b'\n{"url": "a"}\r\n  \n{"id": "x", "data": "b"}')
    assert chunks == [[StoredLine(url="a", name="a"), StoredLine(id="x", data="b", name="x")]]
    assert total == 2


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"url": "b",}', "not a JSON object"),
        (b"[" * 60_000, "Expected `object`"),
        (b'{"id": ' + b"[" * 60_000, "Expected `str | null`"),
        (b'{"size": ' + b"[" * 60_000, "unknown field `size`"),
        (b'{"url": "b", "size": 7}', "unknown field `size`"),
        (b'{"id": "b"}', "exactly one of `url`, `path` and `data` is needed, not none"),
        (b'{"url": "b", "data": "c"}', "not url and data"),
        (b'{"url": 7}', "Expected `str | null`"),
        (b'{"url": "\xff"}', "not a JSON object"),
        (b'{"path": "../../etc/passwd"}', "no archive was sent"),
        (b'{"url": "%s"}' % (b"u" * 9000), "length <= 8192"),
        (b'{"id": "%s", "url": "b"}' % (b"i" * 257), "length <= 256"),
        (b'{"data": "%s"}' % (b"A" * LARGEST), f"longer than {LARGEST} bytes; send large images"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path: Path, line: bytes, text: str) -> None:
    with pytest.raises(MalformedRequest, match=r"line 3 of the manifest") as caught:
        written(tmp_path / "m", b'{"url": "a"}\n\n' + line + b"\n")
    assert text in caught.value.detail
    assert len(caught.value.detail) < 500


def test_a_manifest_without_items_or_with_too_many_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedRequest, match="has no item"):
        written(tmp_path / "m", b"\n \n")
    with pytest.raises(TooLarge, match="more than 2 items"):
        written(tmp_path / "m", b'{"url": "a"}\n' * 3, most=2)
