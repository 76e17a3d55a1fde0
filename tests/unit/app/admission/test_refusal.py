"""Refusals for a deadline or a long wait: from the first image on, and without contradiction."""

import asyncio
import re
from contextlib import suppress

import pytest

from app.admission import Admission, Limits, Permit
from app.admission.account import TARGET, Kind
from app.admission.counters import Total
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from tests.fakes import FakeClock

QUICK, SLOW = (Kind("quick", 0.001),), (Kind("slow", 2.0),)
PIXELS = 1000


class Server:
    """A server of two cores; `clock` is its time."""

    def __init__(self, images: int = 64) -> None:
        self.clock = FakeClock(100.0)
        self.admission = Admission(Limits(images, 1 << 30, 1 << 29), cores=2, clock=self.clock)

    def ask(
        self, client: str, seconds: float, kinds: tuple[Kind, ...] = SLOW, images: int = 1
    ) -> Permit:
        """Admit a request that has come whole."""
        permit = self.admission.enter(client, Deadline.after(seconds, self.clock()))
        try:
            permit.grow(images, 10)
            permit.expect(kinds, [PIXELS] * images)
        except Overloaded:
            permit.release()
            raise
        return permit


def test_the_first_request_whose_deadline_cannot_be_met_is_refused_although_none_was_measured() -> (
    None
):
    server = Server()
    for _ in range(3):
        server.ask("a", 60.0)
    with pytest.raises(Overloaded) as refused:
        server.ask("a", 1.5)
    assert refused.value.retry_after == pytest.approx(3.0, rel=0.01), "6 s of work on two cores"
    server.ask("a", 60.0)


def test_a_limit_of_few_images_changes_neither_the_refusal_nor_its_retry_after() -> None:
    server, kinds = Server(images=4), (Kind("k", 1.5),)
    for _ in range(3):
        server.ask("a", 60.0, kinds)
    with pytest.raises(Overloaded, match="deadline"):
        server.ask("a", 1.5, kinds)
    server.ask("a", 60.0, kinds)
    with pytest.raises(Overloaded) as refused:
        server.ask("a", 60.0, kinds)
    assert refused.value.reason == "images_in_flight"
    assert refused.value.retry_after == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("seconds", [0.001, 1.0, 30.0])
def test_while_a_core_is_free_nothing_is_refused(seconds: float) -> None:
    server = Server()
    server.ask("a", seconds)
    server.ask("a", seconds)


def test_a_machine_that_is_busy_with_other_programs_refuses_no_photo() -> None:
    """Each photo takes 5 s in place of 20 ms, and half of them are in flight at the same time."""

    async def scenario() -> None:
        server = Server()
        for _ in range(30):
            permit = server.ask("a", 30.0, QUICK)
            other = server.ask("b", 30.0, QUICK)
            turn, beside = permit.turn(QUICK, PIXELS), other.turn(QUICK, PIXELS)
            async with turn, beside:
                server.clock.now += 5.0
            permit.release()
            other.release()

    asyncio.run(scenario())


@pytest.mark.parametrize("deadline", [0.5, 2.0, 7.9, 9.0, 60.0, 99.9])
def test_a_message_never_contradicts_itself(deadline: float) -> None:
    server, refused = Server(), list[str]()
    for _ in range(40):
        try:
            server.ask("a", deadline, (Kind("k", 0.7),))
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


def test_a_client_is_not_refused_because_images_of_another_take_longer_than_expected() -> None:
    async def scenario() -> None:
        server, kinds = Server(), (Kind("k", 0.1),)
        permits = [server.ask("a", 60.0, kinds) for _ in range(2)]
        for each in permits:
            await each.turn(kinds, PIXELS).__aenter__()
        server.clock.now += 30.0
        server.ask("b", 2.0, kinds)

    asyncio.run(scenario())


def test_an_image_that_had_to_be_fetched_is_charged_when_it_has_come() -> None:
    async def scenario() -> None:
        server = Server()
        total = server.admission.counters.total
        with server.admission.admit(2, 0, "a", Deadline.after(5.0, server.clock())) as permit:
            permit.expect(SLOW, [])
            assert total(Total.WORK) == 0
            async with permit.turn(SLOW, PIXELS), permit.turn(SLOW, PIXELS):
                assert total(Total.EXPECTED) == 2
                assert total(Total.WORK) == pytest.approx(4_000_000, rel=0.02)
            assert total(Total.EXPECTED) == total(Total.WORK) == total(Total.CLIENTS) == 0

    asyncio.run(scenario())
