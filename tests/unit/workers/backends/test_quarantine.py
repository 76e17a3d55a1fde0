"""Content that ended two workers is refused for a while."""

import asyncio

import numpy as np
import pytest

from models.domain.errors import Quarantined
from models.domain.image import Image, Source
from tests.fakes import FakeClock, fake_job, fake_jpeg
from workers.backends.quarantine import ENTRIES, SECONDS, Quarantine


def pixels(*shape: int, fill: int = 0) -> Source:
    return Image(np.full(shape, fill, np.uint8))


def refused(by: Quarantine, source: Source) -> bool:
    try:
        asyncio.run(by.check(source))
    except Quarantined:
        return True
    return False


@pytest.mark.parametrize(
    ("guilty", "other"),
    [
        (fake_job(1).image, fake_job(2).image),
        (fake_jpeg(1).image, fake_job(1).image),
        (pixels(2, 8, 1), pixels(8, 2, 1)),
    ],
)
def test_content_is_refused_until_the_time_is_over_and_no_other_is(
    guilty: Source, other: Source
) -> None:
    clock = FakeClock(100.0)
    quarantine = Quarantine(clock)
    assert not refused(quarantine, guilty)
    asyncio.run(quarantine.add(guilty))
    assert refused(quarantine, guilty)
    assert not refused(quarantine, other)
    clock.advance(SECONDS)
    assert not refused(quarantine, guilty)


def test_the_oldest_content_makes_room() -> None:
    quarantine = Quarantine(FakeClock(100.0))

    def numbered(number: int) -> Source:
        return Image(np.frombuffer(number.to_bytes(4, "little"), np.uint8).reshape(2, 2, 1))

    async def fill() -> None:
        for number in range(ENTRIES + 1):
            await quarantine.add(numbered(number))

    asyncio.run(fill())
    assert [refused(quarantine, numbered(n)) for n in (0, 1, ENTRIES)] == [False, True, True]
