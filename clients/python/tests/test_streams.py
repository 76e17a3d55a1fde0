"""Many images over both clients: what is sent, what is sent again, and what the caller gets."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.python.tests.scripted import (
    QUICK,
    Answer,
    Exchange,
    answered_well,
    broken_after,
    call,
    fails,
    page,
    problem,
    records,
    scripted,
    sends,
    stream,
)
from darkroom_client import (
    AsyncClient,
    Busy,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    Image,
    ImageResult,
    InvalidAnswer,
    InvalidRequest,
    Progress,
    Unauthorized,
)

pytestmark = pytest.mark.parametrize("kind", ["sync", "async"])

IMAGES = [Image(b"content", f"{n}.jpg", f"id-{n}") for n in range(5)]


def indices(results: list[ImageResult]) -> list[int]:
    return sorted(each.index for each in results)


def test_every_image_has_one_result_with_its_own_name_and_id(kind: str) -> None:
    with scripted() as server:
        found = stream(kind, server.url, IMAGES, images_per_request=2)
        assert indices(found) == [0, 1, 2, 3, 4]
        assert all(each.source == f"{each.index}.jpg" for each in found)
        assert all(each.id == f"id-{each.index}" for each in found)
        assert [len(each.names) for each in server.requests] == [2, 2, 1]


def test_requests_are_bounded_in_bytes(kind: str) -> None:
    images = [bytes(10), bytes(10), bytes(100), bytes(10)]
    with scripted() as server:
        assert len(stream(kind, server.url, images, bytes_per_request=25)) == 4
        assert [len(each.names) for each in server.requests] == [2, 1, 1]


def test_urls_and_files_may_be_mixed(kind: str) -> None:
    with scripted() as server:
        images = [b"content", "https://example.com/a.jpg", Image(b"content", "c.jpg")]
        found = stream(kind, server.url, images)
        sources = {each.index: each.source for each in found}
        assert sources == {0: None, 1: "https://example.com/a.jpg", 2: "c.jpg"}
        assert server.requests[0].names == ["https://example.com/a.jpg", "image-0", "image-2"]


BUSY = problem(503, "overloaded", Retry_After="0")


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ([BUSY], ["01234", "01234"]),
        ([page(502), page(503)], ["01234"] * 3),
        ([broken_after(3)], ["01234", "34"]),
        ([sends(records(4))], ["01234", "0123"]),
        ([problem(413, "too_large")] * 2, ["01234", "01", "0", "1", "234"]),
        ([fails(2, 503, "overloaded")], ["01234", "2"]),
    ],
    ids=["retry-after", "proxy", "broken", "lacking", "halves", "refused-for-now"],
)
def test_images_without_a_result_are_sent_again_under_the_same_id(
    kind: str, answers: list[Answer], sent: list[str]
) -> None:
    with scripted(*answers) as server:
        found = stream(kind, server.url, IMAGES)
        assert indices(found) == [0, 1, 2, 3, 4]
        assert all(each.ok for each in found)
        names = [each.names for each in server.requests]
    assert names == [[f"image-{n}" for n in each] for each in sent]
    if "0" in sent[1] and len(sent) == 2:
        assert len({each.headers["x-request-id"] for each in server.requests}) == 1


@pytest.mark.parametrize(
    ("answers", "error", "words", "requests"),
    [
        ([problem(503, "weights_missing")], Busy, "it is weights_missing .*request mine", 1),
        ([problem(429, "rate_limited", Retry_After="0")] * 4, Busy, "4 tries", 4),
        ([problem(401, "unauthorized")], Unauthorized, "unauthorized", 1),
        ([page(200)], InvalidAnswer, "Darkroom", 1),
        ([broken_after(0)] * 4, ConnectionFailed, "request mine", 4),
    ],
    ids=["no-retry-after", "last-try", "key", "other-program", "broken"],
)
def test_an_error_of_a_whole_request_is_raised(
    kind: str, answers: list[Answer], error: type[Exception], words: str, requests: int
) -> None:
    with scripted(*answers) as server:
        with pytest.raises(error, match=words):
            stream(kind, server.url, IMAGES, request_id="mine")
        assert len(server.requests) == requests


def test_an_image_that_is_always_refused_keeps_its_error(kind: str) -> None:
    answers = [fails(2, 503, "overloaded"), *[fails(0, 503, "overloaded")] * 3]
    with scripted(*answers) as server:
        found = {each.index: each for each in stream(kind, server.url, IMAGES)}
        assert [n for n, each in found.items() if not each.ok] == [2]
        assert len(server.requests) == 4


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(kind: str, tmp_path: Path) -> None:
    (tmp_path / "good.jpg").write_bytes(b"content")
    with scripted() as server:
        images = [tmp_path / "none.jpg", tmp_path / "good.jpg", tmp_path]
        found = {each.index: each for each in stream(kind, server.url, images)}
        assert [found[n].ok for n in range(3)] == [False, True, False]
        error = found[0].error
        assert error is not None
        assert (error.code, error.status) == ("unreadable", 0)
        assert "No such file" in error.detail


def test_an_error_of_a_request_comes_after_the_results_of_the_others(kind: str) -> None:
    with scripted(answered_well, problem(422, "invalid_parameter")) as server:
        seen: list[Progress] = []
        with pytest.raises(InvalidRequest, match="it is invalid_parameter"):
            stream(kind, server.url, IMAGES, images_per_request=2, progress=seen.append)
        assert [each.done for each in seen] == [1, 2]
        assert len(server.requests) == 2


def test_images_are_taken_only_when_there_is_room_for_them(kind: str) -> None:
    taken: list[int] = []
    before: list[int] = []

    def images() -> Iterator[bytes]:
        for number in range(200):
            taken.append(number)
            yield b"content"

    def note(_: Progress) -> None:
        before.append(len(taken))

    with scripted() as server:
        found = stream(
            kind, server.url, images(), images_per_request=5, connections=3, progress=note
        )
        assert len(found) == 200
        # What was taken and has no result yet is under way or in the next request.
        assert max(count - done for done, count in enumerate(before)) <= 3 * 5 + 5


def test_a_deadline_is_sent_and_bounds_all_tries_together(kind: str) -> None:
    with scripted(problem(503, "overloaded", Retry_After="50")) as server:
        with pytest.raises(Busy):
            stream(kind, server.url, IMAGES, deadline=20)
        (request,) = server.requests
        assert 0 < int(request.headers["x-deadline-ms"]) <= 20_000


def test_an_answer_that_does_not_come_before_the_deadline_is_an_error(kind: str) -> None:
    released = threading.Event()

    def late(_: Exchange) -> None:
        released.wait(100)

    with scripted(late) as server:
        try:
            with pytest.raises(DeadlineExceeded, match=r"within 0\.2 s"):
                stream(kind, server.url, IMAGES, deadline=0.2)
        finally:
            released.set()


def test_requests_of_one_call_are_numbered_by_its_id(kind: str) -> None:
    with scripted() as server:
        stream(kind, server.url, IMAGES, images_per_request=2, request_id="all")
        assert [each.headers["x-request-id"] for each in server.requests] == [
            "all",
            "all-2",
            "all-3",
        ]


def test_a_caller_that_stops_early_causes_no_further_requests(kind: str) -> None:
    endless = iter(lambda: b"content", b"")

    async def asked(url: str) -> None:
        async with AsyncClient(url, connections=2, retries=QUICK) as client:
            stream = client.classify_stream(endless)
            await anext(stream)
            await stream.aclose()

    with scripted() as server:
        if kind == "async":
            asyncio.run(asked(server.url))
        else:
            with Client(server.url, connections=2, retries=QUICK) as client:
                results = client.classify_stream(endless)
                next(results)
                results.close()
        assert len(server.requests) <= 3


def test_the_key_and_further_headers_are_sent(kind: str) -> None:
    with scripted() as server:
        call(kind, server.url, "classify", b"content", api_key="secret", headers={"X-Team": "a"})
        headers = server.requests[0].headers
        assert (headers["authorization"], headers["x-team"]) == ("Bearer secret", "a")


@pytest.mark.parametrize("deadline", [0, -1, float("nan")])
def test_a_deadline_in_the_past_is_refused(kind: str, deadline: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        stream(kind, "http://127.0.0.1:9", IMAGES, deadline=deadline)
