"""Archives over both clients: what is sent, what is sent again, and what the caller gets."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from clients.python.tests.scripted import (
    broken_after,
    call,
    page,
    problem,
    records,
    scripted,
    sends,
)
from darkroom_client import Busy, ImageResult, InvalidRequest, Progress

BUSY = problem(503, "overloaded", Retry_After="0")

pytestmark = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.jpg", b"content")
    return path


def classified(kind: str, url: str, archive: Path, **options: Any) -> list[ImageResult]:
    found: list[ImageResult] = call(kind, url, "archives.classify", archive, **options)
    return found


def zipped(kind: str, url: str, archive: Path, out: Path) -> None:
    call(kind, url, "archives.filter_to_zip", archive, "invert", out, format="png")


def test_an_archive_is_the_body_and_its_options_are_in_the_query(kind: str, archive: Path) -> None:
    lines = b"".join(records(n, source=f"{n}.jpg") for n in range(3))
    with scripted(sends(lines)) as server:
        told: list[Progress] = []
        found = classified(kind, server.url, archive, top_k=2, progress=told.append)
        assert [(each.index, each.source) for each in found] == [(n, f"{n}.jpg") for n in range(3)]
        (request,) = server.requests
        assert request.path == "/classify?top_k=2"
        assert request.headers["content-type"] == "application/zip"
        assert request.headers["accept"] == "application/x-ndjson"
        assert request.body == archive.read_bytes()
        assert told == [Progress(n, 0, None) for n in (1, 2, 3)]


def test_after_a_broken_answer_each_result_comes_once(kind: str, archive: Path) -> None:
    with scripted(broken_after(2), BUSY, sends(records(0, 1, 2, 3))) as server:
        found = classified(kind, server.url, archive)
        assert [each.index for each in found] == [0, 1, 2, 3]
        assert len(server.requests) == 3
        assert len({each.headers["x-request-id"] for each in server.requests}) == 1


def test_an_archive_that_is_refused_is_an_exception(kind: str, archive: Path) -> None:
    with scripted(problem(422, "bad_archive")) as server:
        with pytest.raises(InvalidRequest, match="it is bad_archive"):
            classified(kind, server.url, archive)
        assert len(server.requests) == 1
    with scripted(*[BUSY] * 9) as server, pytest.raises(Busy):
        classified(kind, server.url, archive)


@pytest.mark.parametrize("name", ["photo.jpg", "photos.jsonl"])
def test_a_file_that_is_no_archive_is_not_sent(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    with scripted() as server:
        with pytest.raises(ValueError, match=rf"{name}: an archive is a file named \.zip, "):
            classified(kind, server.url, path)
        assert not server.requests


def test_a_zip_of_results_appears_whole_or_not_at_all(
    kind: str, archive: Path, tmp_path: Path
) -> None:
    body, out = archive.read_bytes(), tmp_path / "out.zip"
    good = sends(body, "application/zip")
    with scripted(page(502), good) as server:
        zipped(kind, server.url, archive, out)
        assert out.read_bytes() == body
        request = server.requests[-1]
        assert request.headers["accept"] == "application/zip"
        assert request.path.startswith("/filter?")
        assert "format=png" in request.path
    out.unlink()
    cut_off = sends(body[:20], "application/zip", Content_Length=str(len(body)))
    with scripted(cut_off, good) as server:
        zipped(kind, server.url, archive, out)
        assert out.read_bytes() == body
        assert len(server.requests) == 2
    out.unlink()
    with scripted(problem(422, "bad_archive")) as server, pytest.raises(InvalidRequest):
        zipped(kind, server.url, archive, out)
    assert [each.name for each in tmp_path.iterdir()] == ["photos.zip"]
