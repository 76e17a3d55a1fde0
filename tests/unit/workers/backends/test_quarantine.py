"""Content that ended two workers is refused for a while, by all front ends that share the table."""

import asyncio
import os

import numpy as np
import pytest

from models.domain.errors import Quarantined
from models.domain.image import Image, Source
from tests.fakes import FakeClock, fake_job, fake_jpeg
from workers.backends.quarantine import ENTRIES, LARGE, Quarantine


def large(number: int) -> Source:
    return Image(np.full((LARGE, 2, 1), number, np.uint8))


def refused(by: Quarantine, source: Source) -> bool:
    try:
        asyncio.run(by.check(source))
    except Quarantined:
        return True
    return False


@pytest.mark.parametrize("guilty", [fake_job(1).image, fake_jpeg(1).image, large(1)])
def test_content_is_refused_until_the_time_is_over_and_no_other_is(guilty: Source) -> None:
    clock = FakeClock(100.0)
    quarantine = Quarantine(30.0, clock=clock)
    assert not refused(quarantine, guilty)
    asyncio.run(quarantine.add(guilty))
    assert refused(quarantine, guilty)
    assert not any(refused(quarantine, s) for s in (fake_job(2).image, large(2)))
    clock.advance(30.0)
    assert not refused(quarantine, guilty)


def test_pixels_of_another_shape_are_other_content() -> None:
    quarantine = Quarantine(30.0, clock=FakeClock(1.0))
    asyncio.run(quarantine.add(Image(np.zeros((2, 8, 1), np.uint8))))
    assert not refused(quarantine, Image(np.zeros((8, 2, 1), np.uint8)))


def test_all_that_share_the_table_refuse_the_same() -> None:
    made, clock = Quarantine.create(), FakeClock(100.0)
    assert made.fd is not None
    one, other = (Quarantine(30.0, os.dup(made.fd), clock) for _ in range(2))
    asyncio.run(one.add(fake_job(1).image))
    assert refused(other, fake_job(1).image)
    for each in (made, one, other):
        each.close()


def test_the_table_is_bounded_and_the_oldest_entry_makes_room() -> None:
    clock = FakeClock(100.0)
    quarantine = Quarantine(1e6, clock=clock)

    def numbered(number: int) -> Source:
        return Image(np.frombuffer(number.to_bytes(4, "little"), np.uint8).reshape(2, 2, 1))

    async def fill() -> None:
        for number in range(ENTRIES + 1):
            clock.advance(1.0)
            await quarantine.add(numbered(number))

    asyncio.run(fill())
    assert [refused(quarantine, numbered(n)) for n in (0, 1, ENTRIES)] == [False, True, True]


def test_what_was_computed_well_when_it_was_suspected_is_not_refused() -> None:
    quarantine = Quarantine(30.0, clock=FakeClock(100.0))
    asyncio.run(quarantine.clear(fake_job(1).image))
    asyncio.run(quarantine.add(fake_job(1).image))
    assert not refused(quarantine, fake_job(1).image)


def test_a_time_of_0_refuses_nothing() -> None:
    quarantine = Quarantine(0.0)
    asyncio.run(quarantine.add(fake_job(1).image))
    assert not refused(quarantine, fake_job(1).image)
