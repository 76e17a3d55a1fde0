"""The room of the data folder is shared by all bodies that arrive, and given back by each."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store.database import opened
from app.jobs.store.owners import LEASE, Owner
from app.jobs.submission.room import UNCOUNTED, DataRoom
from models.domain.job_errors import StorageFull
from tests.fakes import FakeClock

MOST = 100 << 20


def with_two_processes(
    folder: Path, scenario: Callable[[DataRoom, DataRoom, FakeClock], Awaitable[None]]
) -> None:
    async def run() -> None:
        engine, clock = await opened(None, folder), FakeClock(1000.0)
        try:
            owners = Owner(engine, clock), Owner(engine, clock)
            for each in owners:
                await each.enter()
            one, other = (DataRoom(each, MOST) for each in owners)
            await scenario(one, other, clock)
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_bodies_of_two_processes_share_the_room_and_give_it_back(tmp_path: Path) -> None:
    async def scenario(one: DataRoom, other: DataRoom, _: FakeClock) -> None:
        async with one.reservation() as first, other.reservation() as second:
            for _n in range(60):
                await first.use(1 << 20)
            with pytest.raises(StorageFull, match="DARKROOM_MAX_DATA_BYTES"):
                await second.use(60 << 20)
        async with other.reservation() as third:
            await third.use(MOST)

    with_two_processes(tmp_path, scenario)


def test_small_bodies_are_not_counted_and_the_last_bytes_of_the_room_are_given(
    tmp_path: Path,
) -> None:
    async def scenario(one: DataRoom, other: DataRoom, _: FakeClock) -> None:
        async with one.reservation() as first, other.reservation() as second:
            await first.use(MOST)
            await second.use(UNCOUNTED)
            with pytest.raises(StorageFull):
                await second.use(1)

    with_two_processes(tmp_path, scenario)


def test_what_a_dead_process_had_reserved_is_free_after_its_lease(tmp_path: Path) -> None:
    async def scenario(one: DataRoom, other: DataRoom, clock: FakeClock) -> None:
        dead = one.reservation()
        await dead.use(MOST)
        async with other.reservation() as body:
            with pytest.raises(StorageFull):
                await body.use(MOST)
        clock.now += LEASE + 1
        async with other.reservation() as body:
            await body.use(MOST)

    with_two_processes(tmp_path, scenario)


def test_a_thread_reserves_through_the_event_loop(tmp_path: Path) -> None:
    async def scenario(one: DataRoom, _: DataRoom, _clock: FakeClock) -> None:
        async with one.reservation() as body:
            await asyncio.to_thread(body.use_on_thread, MOST)
            with pytest.raises(StorageFull):
                await asyncio.to_thread(body.use_on_thread, 1)

    with_two_processes(tmp_path, scenario)


async def renamed(engine: AsyncEngine, before: str, after: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE {before} RENAME TO {after}"))


def test_what_a_failing_database_kept_is_given_back_when_the_lease_is_renewed(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        engine = await opened(None, tmp_path)
        try:
            owner, other = Owner(engine), Owner(engine)
            await owner.enter()
            await other.enter()
            async with DataRoom(owner, MOST).reservation() as body:
                await body.use(MOST)
                await renamed(engine, "darkroom_owners", "gone")
            await renamed(engine, "gone", "darkroom_owners")
            await owner.renew()
            async with DataRoom(other, MOST).reservation() as body:
                await body.use(MOST)
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_bodies_that_are_cancelled_while_they_reserve_hold_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        engine = await opened(None, tmp_path)
        try:
            owner, other = Owner(engine), Owner(engine)
            await owner.enter()
            await other.enter()
            for moment in range(200):
                async with DataRoom(owner, MOST).reservation() as body:
                    reserving = asyncio.create_task(body.use(MOST))
                    await asyncio.sleep(moment % 40 * 0.0001)
                    reserving.cancel()
                    _, pending = await asyncio.wait([reserving], timeout=5)
                    assert not pending
            await owner.renew()
            async with DataRoom(other, MOST).reservation() as body:
                await body.use(MOST)
        finally:
            await engine.dispose()

    asyncio.run(run())
