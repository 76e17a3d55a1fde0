"""Refusals for a deadline or a long wait: from the first image on, and without contradiction."""

import asyncio
import re
from contextlib import suppress

import pytest

from app.admission import Admission, Limits
from app.admission.backlog import TARGET
from app.admission.permits import Work
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from tests.fakes import FakeClock

QUICK, SLOW = 20_000, 2_000_000
"""Expected microseconds of an image."""


class Server:
    """A server of two cores; `clock` is its time."""

    def __init__(self, images: int = 64) -> None:
        self.clock = FakeClock(100.0)
        self.admission = Admission(Limits(images, 1 << 30, 1 << 29), cores=2, clock=self.clock)

    def ask(self, client: str, seconds: float, work: int = SLOW) -> Work:
        """Admit a request of one image that has come whole."""
        permit = self.admission.enter(client, Deadline.after(seconds, self.clock()))
        try:
            permit.grow(1, 10)
            permit.expect([work])
        except Overloaded:
            permit.release()
            raise
        return permit.work(work).__enter__()

    def end(self, work: Work, error: type[Exception] | None = None) -> None:
        """End the work on an image."""
        work.__exit__(error)
        work._permit.release()


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


def test_a_limit_of_few_images_changes_neither_the_refusal_nor_its_retry_after() -> None:
    server = Server(images=4)
    for _ in range(3):
        server.ask("a", 60.0, 1_500_000)
    with pytest.raises(Overloaded, match="deadline"):
        server.ask("a", 1.5, 1_500_000)
    server.ask("a", 60.0, 1_500_000)
    with pytest.raises(Overloaded) as refused:
        server.ask("a", 60.0, 1_500_000)
    assert refused.value.reason == "images_in_flight"
    assert refused.value.retry_after == pytest.approx(3.0)


@pytest.mark.parametrize("seconds", [0.001, 1.0, 30.0])
def test_while_a_core_is_free_nothing_is_refused(seconds: float) -> None:
    server = Server()
    server.ask("a", seconds)
    server.ask("a", seconds)


def test_what_cannot_end_before_a_worker_is_back_is_refused_with_that_time() -> None:
    server = Server()
    server.admission.backlog.absence = lambda: 4.0
    with pytest.raises(Overloaded) as caught:
        server.ask("a", 3.0)
    assert caught.value.retry_after == 4.0
    server.ask("a", 30.0)


async def test_a_machine_that_is_busy_with_other_programs_refuses_no_photo() -> None:
    """Each photo takes 5 s in place of 20 ms, and two of them are in flight at the same time."""
    server = Server()
    for _ in range(30):
        one, other = server.ask("a", 30.0, QUICK), server.ask("b", 30.0, QUICK)
        await one.enter()
        await other.enter()
        server.clock.now += 5.0
        one.leave()
        other.leave()
        server.end(one)
        server.end(other)


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
    admitted = server.admission.held.images
    assert admitted == pytest.approx(TARGET, abs=1), "each takes two seconds of one of two cores"
    with pytest.raises(Overloaded, match=r"may wait for 4\.0: at most 4") as refused:
        server.ask("a", 3600.0)
    assert refused.value.retry_after == pytest.approx(TARGET, abs=1.1)


def test_the_work_of_one_client_is_before_that_of_another_only_as_far_as_both_have_some() -> None:
    server = Server()
    for _ in range(4):
        server.ask("flood", 60.0)
    with pytest.raises(Overloaded):
        server.ask("flood", 5.0)
    server.ask("other", 5.0, QUICK)


async def test_a_client_is_not_refused_because_images_of_another_take_longer() -> None:
    server = Server()
    for _ in range(2):
        await server.ask("a", 60.0, 100_000).enter()
    server.clock.now += 30.0
    server.ask("b", 2.0, 100_000)


def test_a_queue_that_does_not_move_becomes_a_longer_wait() -> None:
    server = Server()
    for _ in range(3):
        server.ask("a", 60.0)
    before = server.admission.backlog.wait("a")
    server.clock.now += 1.0
    assert server.admission.backlog.wait("a") > 2 * before


@pytest.mark.parametrize(
    ("seconds", "error", "least", "most"),
    [
        (0.1, None, 0.1, 0.2),
        (0.01, None, 0.8, 1.2),
        (0.001, None, 3, 10),
        (0.001, ValueError, 1, 2),
    ],
    ids=["slow", "as_expected", "fast", "failing"],
)
async def test_the_speed_is_that_of_work_which_was_done_and_of_none_that_was_only_claimed(
    seconds: float, error: type[Exception] | None, least: float, most: float
) -> None:
    """Two images of 20 ms are past the line; each ends `seconds` after the image before it."""
    server = Server(images=512)
    server.admission.line.set_images(2, 2)
    works = [server.ask("a", 3600.0, QUICK) for _ in range(100)]
    turns = [asyncio.create_task(each.enter()) for each in works]
    for each, turn in zip(works, turns, strict=True):
        await turn
        server.clock.now += seconds
        each.leave()
        server.end(each, error)
    assert least <= server.admission.backlog.speed() / 2e6 <= most
