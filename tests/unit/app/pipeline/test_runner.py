"""The work of a request: side by side, each answer as it finishes, ended with its client."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from app.http.request import StreamWindow
from app.pipeline.pipeline import run, run_window
from models.domain.errors import Cancelled


class Works:
    """Work on items that finishes when a test says so; `ended` lists what has ended, in order."""

    def __init__(self, *names: str) -> None:
        self.gates = {name: asyncio.Event() for name in names}
        self.started: list[str] = []
        self.all_started = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, name: str) -> str:
        self.started.append(name)
        if len(self.started) == len(self.gates):
            self.all_started.set()
        try:
            await self.gates[name].wait()
            return name
        finally:
            self.ended.append(name)


def test_answers_come_in_the_order_in_which_they_finish() -> None:
    async def scenario() -> list[str]:
        works = Works("a", "b", "c")
        found = []
        works.gates["b"].set()
        async with aclosing(run(works, ["a", "b", "c"])) as answers:
            async for answer in answers:
                found.append(answer)
                works.gates["c" if answer == "b" else "a"].set()
        return found

    assert asyncio.run(scenario()) == ["b", "c", "a"]


async def test_nothing_starts_before_the_first_answer_is_asked_for() -> None:
    works = Works("a", "b")
    answers = run(works, ["a", "b"])
    await asyncio.sleep(0)
    assert works.started == []
    await answers.aclose()


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"]])
async def test_all_work_has_ended_when_the_request_is_cancelled(names: list[str]) -> None:
    works = Works(*names)
    answers = run(works, names)
    waiting = asyncio.ensure_future(anext(answers))
    await works.all_started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(works.ended) == names


async def test_all_work_has_ended_when_the_answers_are_closed() -> None:
    works = Works("a", "b", "c")
    works.gates["b"].set()
    answers = run(works, ["a", "b", "c"])
    assert await anext(answers) == "b"
    await answers.aclose()
    assert sorted(works.ended) == ["a", "b", "c"]


class Stream:
    """Items of a stream; `read` lists those that were asked for."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.read: list[str] = []
        self.closed = False

    async def items(self) -> AsyncGenerator[str, None]:
        try:
            for name in self.names:
                self.read.append(name)
                yield name
        finally:
            self.closed = True


async def test_a_stream_is_read_when_its_window_has_room_and_its_answers_are_taken() -> None:
    works, stream, ended = Works("a", "b", "c", "d"), Stream("a", "b", "c", "d"), list[str]()
    window = StreamWindow(2)
    async with aclosing(run_window(works, stream.items(), window, ended.append)) as answers:
        works.gates["b"].set()
        assert await anext(answers) == "b"
        assert (stream.read, window.in_flight) == (["a", "b"], 2)
        works.gates["c"].set()
        assert await anext(answers) == "c"
        assert stream.read == ["a", "b", "c"]
        works.gates["a"].set()
        works.gates["d"].set()
        assert {await anext(answers), await anext(answers)} == {"a", "d"}
        assert [each async for each in answers] == []
    assert sorted(ended) == ["a", "b", "c", "d"]
    assert (window.in_flight, stream.closed) == (0, True)


async def test_a_stream_whose_client_leaves_is_cancelled_with_all_its_work() -> None:
    works, stream, ended = Works("a", "b"), Stream("a", "b", "c"), list[str]()
    window, before = StreamWindow(2), asyncio.all_tasks()
    answers = run_window(works, stream.items(), window, ended.append)
    asking = asyncio.ensure_future(anext(answers))
    await works.all_started.wait()
    tasks = weakref.WeakSet(asyncio.all_tasks() - before)
    asking.cancel()
    gc.disable()
    try:
        await asyncio.wait((asking,))
        assert asking.cancelled()
        del asking, answers
        assert not tasks, "no task waits for the garbage collector with its image"
    finally:
        gc.enable()
    assert sorted(works.ended) == sorted(ended) == ["a", "b"]
    assert stream.closed


async def test_a_stream_that_ends_with_its_client_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading, body_ended = asyncio.Event(), asyncio.Event()

    async def items() -> AsyncGenerator[str, None]:
        reading.set()
        await body_ended.wait()
        raise Cancelled("the client left")
        yield ""

    answers = run_window(Works("a"), items(), StreamWindow(1), lambda _item: None)
    asking = asyncio.ensure_future(anext(answers))
    await reading.wait()
    body_ended.set()  # so the reader ends in the same turn as the request
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gc.collect()
    assert not caplog.records


async def test_an_item_whose_work_never_began_has_ended_too() -> None:
    works, ended = Works("a"), list[str]()

    async def items() -> AsyncGenerator[str, None]:
        asking.cancel()  # so the answers end before the work on the item has its first turn
        yield "a"

    answers = run_window(works, items(), StreamWindow(1), ended.append)
    asking = asyncio.ensure_future(anext(answers))
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0)
    assert (works.started, ended) == ([], ["a"])
