"""The line: whom it refuses for a deadline or a long wait, and the order in which images pass."""

import asyncio
import re
from contextlib import suppress
from unittest.mock import patch

import pytest

from app.admission import Admission, Limits, Permit
from app.admission.line import TARGET, Turn
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from models.domain.job import Lane
from tests.fakes import FakeClock
from tests.unit.app.admission.simulation import held

QUICK, SLOW = 20_000, 2_000_000
"""Expected microseconds of an image."""

BULK = (Lane.BULK, True)


class Server:
    """A server of two cores; `clock` is its time."""

    def __init__(self, images: int = 64, at_once: int = 0, bulk: int = 0, alone: int = 0) -> None:
        self.clock = FakeClock(100.0)
        self.admission = Admission(
            Limits(images, 1 << 30, 1 << 29),
            cores=2,
            at_once=at_once,
            most_bulk=bulk or None,
            alone=alone,
            clock=self.clock,
        )

    def ask(self, client: str, seconds: float, work: int = SLOW, images: int = 1) -> Turn:
        """Admit a request that has come whole, of which one image asks for its turn."""
        permit = self.admission.enter(client, Deadline(self.clock() + seconds))
        try:
            permit.grow(1, 10)
            permit.expect(images)
        except Overloaded:
            permit.release()
            raise
        return permit.turn(work).__enter__()

    def end(self, turn: Turn, *, failed: bool = False) -> None:
        """End the work on an image."""
        turn.__exit__(ValueError if failed else None)
        turn.permit.release()


class Crowd:
    """Images of clients that may wait for long; `passed` has the clients of those let through."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.passed: list[str] = []
        self.turns: list[Turn] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, clients: str, work: int = SLOW) -> None:
        """Let an image of each client wait for its turn."""
        for client in clients:
            permit = self._server.admission.enter(client)
            permit.grow(1, 10)
            self.turns.append(permit.turn(work).__enter__())
            self.tasks.append(asyncio.create_task(self._take(self.turns[-1])))
        await asyncio.sleep(0)

    async def _take(self, turn: Turn) -> None:
        await turn.take()
        self.passed.append(turn.permit.client)

    async def end(self, n: int) -> None:
        """End an image, which has its turn or waits for it."""
        self.tasks[n].cancel()
        await asyncio.gather(self.tasks[n], return_exceptions=True)
        self._server.end(self.turns[n])
        await asyncio.sleep(0)


async def test_bulk_leaves_a_place_free_for_others_and_takes_it_when_it_is_bulk_no_more() -> None:
    crowd = Crowd(Server(at_once=3, bulk=2))
    standings = {"a": BULK, "b": (Lane.INTERACTIVE, True)}
    with patch.object(Permit, "standing", lambda permit: standings[permit.client]):
        await crowd.ask("aaaa")
        assert crowd.passed == ["a", "a"]
        await crowd.ask("b")
        assert crowd.passed == ["a", "a", "b"]
        standings["a"] = (Lane.BULK, False)
        await crowd.end(0)
        assert crowd.passed == ["a", "a", "b", "a"]


async def test_an_image_whose_request_ends_while_it_waits_takes_no_place() -> None:
    crowd = Crowd(server := Server(at_once=1))
    await crowd.ask("abc", work=QUICK * 20)
    await crowd.end(1)
    await crowd.end(0)
    assert crowd.passed == ["a", "c"]
    await crowd.end(2)
    assert len(server.admission.line.queue) == 0


@pytest.mark.parametrize(
    ("standing", "work", "passed"),
    [
        ((Lane.INTERACTIVE, False), 150_000, 2),
        ((Lane.INTERACTIVE, False), 50_000, 4),
        ((Lane.BULK, False), 150_000, 6),
        (BULK, 50_000, 1),
        ((Lane.BACKGROUND, True), 150_000, 2),
    ],
)
async def test_how_many_images_pass_and_that_bulk_and_jobs_keep_no_other_client_waiting(
    standing: tuple[Lane, bool], work: int, passed: int
) -> None:
    """0.2 s of work may be past the line."""
    crowd = Crowd(Server(at_once=2, bulk=1, alone=6))
    standings = {"a": standing, "b": (Lane.INTERACTIVE, True)}
    with patch.object(Permit, "standing", lambda permit: standings[permit.client]):
        await crowd.ask("a" * 9, work)
        assert len(crowd.passed) == passed
        standings["a"] = BULK if standing[0] is Lane.BULK else standing
        await crowd.ask("b", work)
        assert ("b" in crowd.passed) is (standing[0] is not Lane.INTERACTIVE)


def test_the_first_request_whose_deadline_cannot_be_met_is_refused_although_none_was_measured() -> (
    None
):
    server = Server()
    for _ in range(3):
        server.ask("a", 60.0)
    with pytest.raises(Overloaded) as refused:
        server.ask("a", 1.5)
    assert refused.value.retry_after == pytest.approx(3.0), "6 s of work on two cores"
    server.ask("a", 60.0)


async def test_while_a_core_is_free_nothing_is_refused_however_slow_the_machine_is() -> None:
    """Each photo takes 5 s in place of 20 ms, and two of them are in flight at the same time."""
    server = Server()
    for seconds in [0.001, 1.0, *(30.0,) * 30]:
        both = [server.ask(client, seconds, QUICK) for client in "ab"]
        for each in both:
            await each.take()
        server.clock.now += 5.0
        for each in both:
            server.end(each)


def test_a_request_whose_own_images_miss_its_deadline_is_refused_while_others_wait() -> None:
    server = Server()
    for _ in range(3):
        server.ask("a", 60.0, 200_000)
    with pytest.raises(Overloaded):
        server.ask("b", 10.0, 200_000, images=100)
    server.ask("b", 10.0, 200_000, images=50)


@pytest.mark.parametrize("deadline", [0.5, 2.0, 7.9, 9.0, 60.0, 99.9])
def test_a_message_never_contradicts_itself(deadline: float) -> None:
    server, refused = Server(), list[str]()
    for _ in range(40):
        try:
            server.ask("a", deadline, 700_000)
        except Overloaded as error:
            refused.append(str(error))
            server.clock.now += 0.1
    assert refused
    for each in refused:
        numbers = re.search(r"about ([\d.]+) .*wait for ([\d.]+):", each)
        assert numbers is not None
        assert float(numbers[1]) > float(numbers[2]), each


def test_a_wait_of_more_than_some_seconds_is_refused_whatever_the_deadline_is() -> None:
    server = Server()
    for _ in range(100):
        with suppress(Overloaded):
            server.ask("a", 3600.0)
    admitted = held(server.admission)[0]
    assert admitted == pytest.approx(TARGET, abs=1), "each takes two seconds of one of two cores"
    with pytest.raises(Overloaded, match=r"may wait for 3\.0: at most 3") as refused:
        server.ask("a", 3600.0)
    assert refused.value.retry_after == pytest.approx(TARGET, abs=1.1)


async def test_the_work_of_one_client_is_before_that_of_another_only_as_far_as_both_have_some() -> (
    None
):
    server = Server()
    for _ in range(4):
        await server.ask("flood", 60.0).take()
    with pytest.raises(Overloaded):
        server.ask("flood", 5.0)
    server.clock.now += 30.0
    server.ask("other", 5.0, QUICK)


async def test_a_queue_that_does_not_move_becomes_a_longer_wait() -> None:
    server = Server()
    server.admission.line.set_images(2, 2, 2)
    turns = [server.ask("a", 60.0) for _ in range(3)]
    waiting = asyncio.gather(*(each.take() for each in turns))
    await asyncio.sleep(0)
    before = server.admission.line.wait("a")
    server.clock.now += 1.0
    assert server.admission.line.wait("a") > 2 * before
    server.end(turns[0])
    await waiting


@pytest.mark.parametrize(("together", "least"), [(100, 2), (4, 4)], ids=["waiting", "passing"])
@pytest.mark.parametrize(
    ("seconds", "failed", "lowest", "highest"),
    [(0.1, False, 0.1, 0.2), (0.01, False, 0.8, 1.2), (0.001, False, 3, 10), (0.001, True, 0.9, 2)],
    ids=["slow", "as_expected", "fast", "failing"],
)
async def test_the_speed_is_that_of_work_which_was_done_and_of_none_that_was_only_claimed(
    together: int, least: int, seconds: float, failed: bool, lowest: float, highest: float
) -> None:
    """Images of 20 ms come `together`; each ends `seconds` after the image before it."""
    server = Server(images=512)
    server.admission.line.set_images(least, least, 2)
    for _ in range(100 // together):
        turns = [server.ask("a", 3600.0, QUICK) for _ in range(together)]
        waiting = [asyncio.create_task(each.take()) for each in turns]
        for each, turn in zip(turns, waiting, strict=True):
            await turn
            server.clock.now += seconds
            server.end(each, failed=failed)
    assert lowest <= server.admission.line.speed() / 2e6 <= highest


async def test_slow_work_says_nothing_of_the_speed() -> None:
    """Two images of ten seconds at a time count as two seconds each for others."""
    server = Server(at_once=4)
    for _ in range(3):
        assert server.admission.line.speed() == 2e6
        both = [server.ask("a", 60.0, 5 * SLOW) for _ in range(2)]
        for each in both:
            await each.take()
        server.clock.now += 10.0
        for each in both:
            server.end(each)
