"""Bodies that come too slowly, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import TypeVar

import pytest
from starlette.types import Message

from app.connections import body_rate
from app.connections.body_rate import STREAM, TURNS, PatientReceive
from models.domain.alarms import alarms
from models.domain.deadline import Deadline
from models.domain.errors import Draining, SlowBody
from tests.unit.app.admission.simulation import VirtualLoop

PAUSE = 1 / 64
"""Seconds; like all times here a sum of powers of two, so that virtual time is exact."""
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock of the event loop that runs, by which the rate is measured."""
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(body_rate, "time", clock)


def run(scenario: Coroutine[object, object, T]) -> T:
    """Run a scenario in which pauses take no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)


def received(
    sizes: Iterable[int], window: float, rate: int, seconds: float, patch: pytest.MonkeyPatch
) -> int:
    """Read a body whose chunks come after a pause each; return its length."""
    patch.setattr(body_rate, "WINDOW", window)
    chunks = iter(sizes)

    async def receive() -> Message:
        await asyncio.sleep(PAUSE)
        size = next(chunks, None)
        return {"type": "http.request", "body": b"x" * (size or 0), "more_body": size is not None}

    async def scenario() -> int:
        patient, n_bytes, more = PatientReceive(receive, seconds, rate), 0, True
        while more:
            message = await patient()
            n_bytes += len(message["body"])
            more = message["more_body"]
        return n_bytes

    return run(scenario())


def test_a_byte_now_and_then_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SlowBody, match="DARKROOM_MIN_BODY_RATE"):
        received([1] * 1000, 1 / 8, 1024, 30, monkeypatch)


def test_a_quick_body_of_any_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert received([5000] * 20, 1 / 8, 1024, 30, monkeypatch) == 100_000


def test_a_short_slow_body_ends_before_anybody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert received([1, 1], 30, 1024, 30, monkeypatch) == 2


def test_without_a_rate_any_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert received([1] * 5, 1 / 128, 0, 30, monkeypatch) == 5


def test_silence_is_slow_at_the_end_of_a_window_or_of_the_chunks_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for window, rate, message in (
        (1 / 128, 1, "per second"),
        (30, 1, "no body data for 0.0078125"),
    ):
        with pytest.raises(SlowBody, match=message):
            received([1], window, rate, 1 / 128 if window == 30 else 30, monkeypatch)


def test_what_the_application_takes_for_itself_is_not_the_clients_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_rate, "WINDOW", 1 / 16)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def scenario() -> None:
        patient = PatientReceive(receive, 30, 1_000_000)
        for _ in range(10):
            await patient()
            await asyncio.sleep(1 / 32)

    run(scenario())


def test_a_message_that_is_there_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"all", "more_body": False}

    def none(_deadline: Deadline) -> None:
        raise AssertionError("a timer was started")

    monkeypatch.setattr(body_rate, "Timeout", none)
    assert run(PatientReceive(receive, 30, 1024)())["body"] == b"all"


def test_waiting_for_a_body_can_be_cancelled_and_ends_the_waiting_below() -> None:
    async def scenario() -> list[str]:
        ended: list[str] = []

        async def receive() -> Message:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("below")
            raise AssertionError("unreachable")

        task = asyncio.ensure_future(PatientReceive(receive, 30, 1024)())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(SlowBody, match="no body data"):
            await PatientReceive(receive, 1 / 128, 1024)()
        return ended

    assert run(scenario()) == ["below", "below"]


class Pace:
    """The state of a stream."""

    def __init__(self, in_flight: int, inside_item: bool) -> None:
        self.in_flight = in_flight
        self.inside_item = inside_item
        self.left = asyncio.Event()


def paced(in_flight: int, inside_item: bool, pause: float) -> None:
    """Wait `pause` seconds for the next byte of a stream in that state."""

    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        due = now() + pause

        async def receive() -> Message:
            await asyncio.sleep(due - now())  # called again after each window
            return {"type": "http.request", "body": b"1", "more_body": True}

        await PatientReceive(receive, 32, 1024, {STREAM: Pace(in_flight, inside_item)})()

    run(scenario())


def test_a_stream_may_pause_while_answers_are_owed() -> None:
    paced(1, True, pause=25)
    paced(1, False, pause=25)


def test_a_stream_needs_the_rate_inside_an_image_only() -> None:
    paced(0, False, pause=25)
    with pytest.raises(SlowBody, match="DARKROOM_MIN_BODY_RATE"):
        paced(0, True, pause=25)


def test_a_stream_that_sends_nothing_more_is_slow_unless_answers_are_owed() -> None:
    for seconds in (40, 100):
        with pytest.raises(SlowBody, match="no body data for 32 seconds"):
            paced(0, False, pause=seconds)


def test_a_body_that_is_awaited_when_the_server_gives_up_is_told_so() -> None:
    async def scenario() -> None:
        async def receive() -> Message:
            await asyncio.sleep(1000)
            raise AssertionError("unreachable: the body never comes")

        loop = asyncio.get_running_loop()
        start = loop.time()
        loop.call_later(1.0, alarms().end)
        with pytest.raises(Draining, match="send it again"):
            await PatientReceive(receive, 30, 0)()
        assert loop.time() - start < 2.0

    run(scenario())


class Turns:
    """Turns that are given when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def add(self, thing: Callable[[], None], rank: int) -> None:
        assert rank == 1
        self.waiting.append(thing)


def test_a_request_that_has_waited_for_its_body_goes_on_in_its_turn() -> None:
    turns = Turns()

    async def scenario() -> None:
        arrived = asyncio.Event()

        async def receive() -> Message:
            await arrived.wait()
            return {"type": "http.request", "body": b"all", "more_body": False}

        reading = asyncio.create_task(PatientReceive(receive, 30, 0, {TURNS: turns})())
        await asyncio.sleep(0)
        assert not turns.waiting
        arrived.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reading.done()
        turns.waiting.pop()()
        assert (await reading)["body"] == b"all"

    run(scenario())


def test_a_request_whose_body_is_there_needs_no_further_turn() -> None:
    turns = Turns()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"all", "more_body": False}

    assert run(PatientReceive(receive, 30, 0, {TURNS: turns})())["body"] == b"all"
    assert not turns.waiting
