"""The room of the data folder is shared by all bodies that arrive, and given back by each."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import ColumnElement, text
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.room import UNCOUNTED, DataRoom
from app.jobs.store.arrivals import Arrivals, Counts
from app.jobs.store.database import opened
from app.jobs.store.owners import LEASE, Owner
from models.domain.job_errors import StorageFull
from tests.fakes import GUARD, FakeClock

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
            one, other = (DataRoom(Arrivals(engine, each.id, clock), MOST, MOST) for each in owners)
            await scenario(one, other, clock)
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_bodies_of_two_processes_share_the_room_and_give_it_back(tmp_path: Path) -> None:
    async def scenario(one: DataRoom, other: DataRoom, _: FakeClock) -> None:
        async with (
            await one.reservation("1", "me") as first,
            await other.reservation("2", "me") as second,
        ):
            for _n in range(60):
                await first.use(1 << 20)
            with pytest.raises(StorageFull, match="DARKROOM_MAX_DATA_BYTES"):
                await second.use(60 << 20)
        async with await other.reservation("3", "me") as third:
            await third.use(MOST)

    with_two_processes(tmp_path, scenario)


def test_small_bodies_are_not_counted_and_the_last_bytes_of_the_room_are_given(
    tmp_path: Path,
) -> None:
    async def scenario(one: DataRoom, other: DataRoom, _: FakeClock) -> None:
        async with (
            await one.reservation("1", "me") as first,
            await other.reservation("2", "me") as second,
        ):
            await first.use(MOST)
            await second.use(UNCOUNTED)
            with pytest.raises(StorageFull):
                await second.use(1)

    with_two_processes(tmp_path, scenario)


def test_what_a_dead_process_had_reserved_is_free_after_its_lease(tmp_path: Path) -> None:
    async def scenario(one: DataRoom, other: DataRoom, clock: FakeClock) -> None:
        dead = await one.reservation("1", "me")
        await dead.use(MOST)
        async with await other.reservation("2", "me") as body:
            with pytest.raises(StorageFull):
                await body.use(MOST)
        clock.now += LEASE + 1
        async with await other.reservation("2", "me") as body:
            await body.use(MOST)

    with_two_processes(tmp_path, scenario)


def test_a_thread_reserves_through_the_event_loop(tmp_path: Path) -> None:
    async def scenario(one: DataRoom, _: DataRoom, _clock: FakeClock) -> None:
        async with await one.reservation("1", "me") as body:
            await asyncio.to_thread(body.use_on_thread, MOST)
            with pytest.raises(StorageFull):
                await asyncio.to_thread(body.use_on_thread, 1)

    with_two_processes(tmp_path, scenario)


async def arrivals_of(engine: AsyncEngine) -> Arrivals:
    """Return the bodies of one more process."""
    owner = Owner(engine)
    await owner.enter()
    return Arrivals(engine, owner.id)


async def renamed(engine: AsyncEngine, before: str, after: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(f"ALTER TABLE {before} RENAME TO {after}"))


def test_what_a_failing_database_kept_is_given_back_later(tmp_path: Path) -> None:
    async def run() -> None:
        engine = await opened(None, tmp_path)
        try:
            here, there = await arrivals_of(engine), await arrivals_of(engine)
            async with await DataRoom(here, MOST, MOST).reservation("1", "me") as body:
                await body.use(MOST)
                await renamed(engine, "darkroom_arrivals", "gone")
            await renamed(engine, "gone", "darkroom_arrivals")
            await here.tidy()
            async with await DataRoom(there, MOST, MOST).reservation("2", "me") as body:
                await body.use(MOST)
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_bodies_that_are_cancelled_while_they_reserve_hold_nothing(tmp_path: Path) -> None:
    async def arrive(room: DataRoom, id_: str) -> None:
        async with await room.reservation(id_, "me") as body:
            await body.use(MOST)

    async def run() -> None:
        engine = await opened(None, tmp_path)
        try:
            here, there = await arrivals_of(engine), await arrivals_of(engine)
            for moment in range(200):
                arriving = asyncio.create_task(arrive(DataRoom(here, MOST, MOST), str(moment)))
                await asyncio.sleep(moment % 40 * 0.0002)
                arriving.cancel()
                _, pending = await asyncio.wait([arriving], timeout=GUARD)
                assert not pending
            # What was begun for them ends by itself: nothing of it is left for the next `tidy`.
            begun = asyncio.all_tasks() - {asyncio.current_task()}
            if begun:
                assert not (await asyncio.wait(begun, timeout=GUARD))[1]
            told: list[Counts] = []
            async with await DataRoom(there, MOST, MOST).reservation(
                "other", "me", None, told.append
            ) as body:
                await body.use(MOST)
            assert told[0].arriving == 0
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_one_client_leaves_room_to_others(tmp_path: Path) -> None:
    async def run() -> None:
        engine = await opened(None, tmp_path)
        try:
            rooms = [DataRoom(await arrivals_of(engine), MOST, MOST // 2) for _ in range(2)]
            async with await rooms[0].reservation("1", "one") as first:
                await first.use(MOST // 4)
                async with await rooms[1].reservation("2", "one") as second:
                    await second.use(MOST // 4)
                    with pytest.raises(
                        StorageFull, match="three quarters of DARKROOM_MAX_DATA_BYTES"
                    ):
                        await second.use(1)
                async with await rooms[1].reservation("3", "other") as third:
                    await third.use(MOST // 2)
                async with await rooms[1].reservation("4", "one") as fourth:
                    await fourth.use(MOST // 4)
        finally:
            await engine.dispose()

    asyncio.run(run())


def test_a_body_that_comes_while_others_are_tidied_up_stays_counted(tmp_path: Path) -> None:
    class Late(Arrivals):
        """Bodies of which one comes just before lost ones are removed."""

        async def _remove(self, which: ColumnElement[bool]) -> None:
            await self.begin("late", "me", None, lambda _: None)
            await super()._remove(which)

    async def run() -> None:
        engine = await opened(None, tmp_path)
        try:
            owner, there = Owner(engine), await arrivals_of(engine)
            await owner.enter()
            await Late(engine, owner.id).tidy()
            told: list[Counts] = []
            await there.begin("other", "me", None, told.append)
            assert told[0].arriving == 1
        finally:
            await engine.dispose()

    asyncio.run(run())
