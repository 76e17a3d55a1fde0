"""Manifests: their chunks, and the lines that are refused."""

import json
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from app.jobs.manifest import ManifestWriter, StoredLine, data_at, read
from app.jobs.receiving import JsonElements
from models.domain.errors import MalformedRequest, TooLarge

LONGEST = 1 << 20


def written(path: Path, *pieces: bytes, most: int = 1000) -> tuple[list[list[StoredLine]], int]:
    """Return the items of each chunk of a manifest that comes in pieces, and their number."""
    with closing(ManifestWriter(path, most, LONGEST)) as writer:
        for each in pieces:
            writer.write(each)
        writer.finish()
        return [read(path, span) for span in writer.spans], writer.total


def test_chunks_are_runs_of_lines_however_the_body_is_divided(tmp_path: Path) -> None:
    body = b"".join(b'{"url": "https://e.org/%d"}\n' % n for n in range(150))
    for size in (1, 7, 64, len(body)):
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        chunks, total = written(tmp_path / "m", *pieces)
        assert [len(each) for each in chunks] == [32, 32, 32, 32, 22]
        urls = [line.url for chunk in chunks for line in chunk]
        assert urls == [f"https://e.org/{n}" for n in range(total)]
        assert total == 150


def test_the_last_line_needs_no_line_end_and_empty_lines_are_no_items(tmp_path: Path) -> None:
    chunks, total = written(tmp_path / "m", b'\n{"url": "a"}\r\n  \n', b'{"id": "x", "data": "b"}')
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
        (b'{"url": "b"}' + b" " * (65 << 10), "longer than 65536 bytes"),
        (b'{"data": "%s"}' % (b"A" * LONGEST), f"longer than {LONGEST} bytes"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(tmp_path: Path, line: bytes, text: str) -> None:
    with pytest.raises(MalformedRequest, match=r"line 3 of the manifest") as caught:
        written(tmp_path / "m", b'{"url": "a"}\n\n', line, b"\n")
    assert text in caught.value.detail
    assert len(caught.value.detail) < 500


def test_a_line_without_end_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    piece = b"x" * (1 << 16)
    with closing(ManifestWriter(tmp_path / "m", 10, LONGEST)) as writer:
        for number in range(100):
            try:
                writer.write(piece)
            except MalformedRequest:
                assert number * len(piece) <= LONGEST
                return
    raise AssertionError("6 MB were taken as one line")


def test_a_manifest_without_items_or_with_too_many_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedRequest, match="has no item"):
        written(tmp_path / "m", b"\n \n")
    with pytest.raises(TooLarge, match="more than 2 items"):
        written(tmp_path / "m", b'{"url": "a"}\n' * 3, most=2)


def test_chunks_with_much_data_are_smaller(tmp_path: Path) -> None:
    line = json.dumps({"data": "A" * 1_000_000}).encode() + b"\n"
    chunks, _ = written(tmp_path / "m", *[line] * 20)
    assert [len(each) for each in chunks] == [8, 8, 4]


def test_the_data_of_a_large_line_is_read_when_it_is_needed(tmp_path: Path) -> None:
    data = "A" * 9_000_000
    line = json.dumps({"id": "large", "data": data}).encode() + b"\n"
    small = b'{"id": "small", "data": "data:,"}\n'
    path = tmp_path / "m"
    with closing(ManifestWriter(path, 10, 10_000_000)) as writer:
        for each in (small, line, small):
            writer.write(each)
        writer.finish()
    chunks = [read(path, span) for span in writer.spans]
    assert [[each.id for each in chunk] for chunk in chunks] == [["small"], ["large"], ["small"]]
    ((found,),) = (chunk for chunk in chunks if chunk[0].id == "large")
    assert found.data is None
    assert found.at is not None
    assert data_at(path, found.at) == data


def test_a_manifest_of_many_lines_takes_the_memory_of_its_chunks_alone(tmp_path: Path) -> None:
    piece = b"".join(
        b'{"id": "%d", "url": "https://example.org/%d.jpg"}\n' % (n, n) for n in range(1000)
    )
    tracemalloc.start()
    try:
        with closing(ManifestWriter(tmp_path / "m", 1_000_000, LONGEST)) as writer:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(50):
                writer.write(piece)
            writer.finish()
            held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert writer.total == 50_000
    assert held < 400 * len(writer.spans) + (1 << 17)


def elements(*pieces: bytes) -> list[bytes]:
    found = JsonElements(1000)
    taken = [each for piece in pieces for each in found.write(piece)]
    found.finish()
    return taken


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000])
def test_a_json_list_is_divided_wherever_its_pieces_end(size: int) -> None:
    items = [{"url": 'a]",[{\\'}, {"id": "ü", "data": "x"}, [1, [2]], "text", 7, None, {}]
    body = f"  {json.dumps(items)}\n".encode()
    found = elements(*[body[start : start + size] for start in range(0, len(body), size)])
    assert [json.loads(each) for each in found] == items


def test_a_list_may_be_empty() -> None:
    assert elements(b" [ ] ") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[1",
        b'["',
        b"7",
        b'"a"',
        b"{}",
        b"[1]]",
        b"[1] [2]",
        b"[1],",
        b"]",
        b"x[1]",
        b"[1]x",
        b"[,1]",
        b"[1,,2]",
        b"[1,]",
        b"[" + b" " * 2000,
        b'["' + b"x" * 2000,
    ],
)
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        elements(body)
