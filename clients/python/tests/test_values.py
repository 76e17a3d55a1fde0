"""Values without I/O: lines, problems, images, options, results and files."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from darkroom_client import Image, ImageError, ImageResult, InvalidAnswer
from darkroom_client import requests as asked
from darkroom_client.answers import Lines, problem, record
from darkroom_client.files import stored, write
from darkroom_client.images import item, one_or_many
from darkroom_client.manifest import write_manifest


def test_lines_end_only_at_line_feeds_wherever_pieces_end() -> None:
    text = '{"a": "\u2028\x85"}\n\n{"b": 1}\n'.encode()
    for size in range(1, len(text)):
        lines = Lines()
        pieces = [text[n : n + size] for n in range(0, len(text), size)]
        found = [line for piece in pieces for line in lines.feed(piece)]
        assert found == ['{"a": "\u2028\x85"}'.encode(), b'{"b": 1}']


def test_a_record_may_have_members_of_a_later_version() -> None:
    found = record(b'{"index": 0, "status": "ok", "later": [1], "image": null}')
    assert found == ImageResult(index=0, status="ok")


@pytest.mark.parametrize("line", [b"[]", b"{}", b'{"index": "x", "status": "ok"}', b"\xff", b"<"])
def test_a_line_that_is_no_record_is_an_error(line: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        record(line)


def test_the_page_of_a_proxy_becomes_a_problem_with_its_status() -> None:
    found = problem(502, {"content-type": "text/html"}, b"<h1>\n  bad  gateway</h1>")
    assert (found.status, found.code) == (502, "http_error")
    assert found.detail == "HTTP 502 Bad Gateway: <h1> bad gateway</h1>"


@pytest.mark.parametrize("content", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_of_every_kind_are_images(content: Any) -> None:
    assert item(3, content).content == b"abc"


def test_a_file_object_is_read_when_it_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        found = item(0, file)
    assert (found.content, found.source) == (b"abc", str(path))
    assert item(0, io.BytesIO(b"xyz")).content == b"xyz"


def test_what_is_no_image_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(TypeError, match="int is no image: give a path"):
        item(0, 5)  # type: ignore[arg-type]  # that is the error


@pytest.mark.parametrize("image", ["a.jpg", b"abc", Path("a.jpg"), Image(b"abc"), io.BytesIO()])
def test_one_image_is_no_collection_although_it_may_be_iterable(image: Any) -> None:
    one, many = one_or_many(image)
    assert one
    assert many == [image]


def test_options_become_fields_and_missing_ones_stay_the_servers() -> None:
    call = asked.classify({"top_k": 3, "model": None, "output": "logits"})
    assert call.fields == {"top_k": "3", "output": "logits", "vector_format": "base64"}
    call = asked.filtered(["sepia", {"name": "flip"}], {"lossless": True, "out": "x"})
    assert call.fields == {"ops": '[{"name":"sepia"},{"name":"flip"}]', "lossless": "true"}
    assert call.out == Path("x")


def test_the_names_of_files_stay_with_the_caller() -> None:
    request, sent = asked.classify({}).request([(item(7, Image(b"abc", "/x/a.zip")), b"abc")])
    assert [name for name, _ in request.files] == ["image-7"]
    assert [each.source for each in sent] == ["/x/a.zip"]


def test_a_vector_comes_as_base64_of_float32() -> None:
    found = record(b'{"index": 0, "status": "ok", "embedding": "AACAPwAAAEA="}')
    assert [*found.vector] == [1.0, 2.0]
    assert [*record(b'{"index": 0, "status": "ok", "logits": [0.5]}').vector] == [0.5]


FAILED = b'{"index": 0, "status": "error", "error": {"code": "undecodable", "detail": "damaged"}}'


def test_a_failed_image_raises_only_when_its_content_is_asked_for() -> None:
    found = record(FAILED)
    assert not found.ok
    for member in ("content", "vector"):
        with pytest.raises(ImageError, match="damaged"):
            getattr(found, member)
    with pytest.raises(ImageError, match="damaged"):
        found.checked()


FILTERED = b"""{"index": 7, "status": "ok", "source": "%s",
"image": {"media_type": "image/png", "width": 1, "height": 1, "bytes": 3, "data": "YWJj"}}"""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (b"a/b c.jpg", "000007-b_c.png"),
        (b"https://example.com/x.jpg?y=../z", "000007-x.png"),
        (b"../..", "000007.png"),
        (b"http://[x/y.jpg", "000007-y.png"),
        (b"", "000007.png"),
    ],
)
def test_results_are_files_in_their_folder_whatever_the_source(
    source: bytes, name: str, tmp_path: Path
) -> None:
    found = stored(record(FILTERED % source), tmp_path / "out")
    assert found.image is not None
    assert (found.image.path, found.image.data) == (tmp_path / "out" / name, None)
    assert (tmp_path / "out" / name).read_bytes() == b"abc"
    assert len([*(tmp_path / "out").iterdir()]) == 1


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write(tmp_path / "taken", b"abc")
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def test_a_file_whose_name_is_no_unicode_stands_in_a_manifest(tmp_path: Path) -> None:
    """Linux allows any bytes in names, and one of them must not end the job of all others."""
    name = os.fsdecode(b"\xff.jpg")
    (tmp_path / name).write_bytes(b"abc")
    path = tmp_path / "manifest.jsonl"
    write_manifest([tmp_path / name, b"def"], path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["id"].endswith("\\udcff.jpg")
    assert len(lines) == 2
