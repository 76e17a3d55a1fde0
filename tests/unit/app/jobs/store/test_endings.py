"""Endings of jobs in a database: each is done by one process, and by another one if that dies."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from app.jobs.store.database import opened
from app.jobs.store.endings import (
    AT_ONCE,
    DESTINATION,
    OF_ONE,
    WAITING,
    WEBHOOK,
    Claimed,
    Ending,
    EndingRows,
)
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import LEASE, Owner
from app.jobs.store.values import Job, Span, State
from tests.fakes import FakeClock
from tests.job_store import Run, Store

ENDED = Job("1", "me", State.SUCCEEDED, "classify", {}, 1, 1, 0, 5, 1000.0)
ENDINGS = [Ending("1", kind, kind, WAITING, 0, 0.0, None, None) for kind in (WEBHOOK, DESTINATION)]


def test_what_a_process_works_on_is_free_again_as_soon_as_its_lease_has_ended(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        engine, clock = await opened(None, tmp_path), FakeClock(1000.0)
        try:
            owners = Owner(engine, clock), Owner(engine, clock)
            for each in owners:
                await each.enter()
            one, other = (EndingRows(engine, each.id, clock) for each in owners)
            await JobRows(engine, clock).add(ENDED, [Span(0, 1, 0, 5)], ENDINGS)

            first = await one.claim()
            assert first is not None
            assert first.ending.kind == DESTINATION, "the webhook waits for the results"
            for _ in range(10):  # it takes hours, and its owner lives
                clock.advance(LEASE / 2)
                for each in owners:
                    await each.renew()
                assert await other.claim() is await one.claim([first]) is None

            await owners[1].renew()
            clock.advance(LEASE / 2)
            await owners[1].renew()
            clock.advance(LEASE / 2 + 1)  # the lease of the first one has ended
            second = await other.claim()
            assert second is not None
            assert (second.ending.kind, second.ending.attempts) == (DESTINATION, 1)
            await other.postpone(second.ending, 5.0, "try again")
            assert await other.claim() is None
            clock.advance(6)
            await owners[1].renew()
            third = await other.claim()
            assert third is not None
            await other.finish(third.ending, "done", "there")
            last = await other.claim()
            assert last is not None
            assert last.ending.kind == WEBHOOK
            await owners[1].leave()
            assert await one.claim() is not None
        finally:
            await engine.dispose()

    asyncio.run(test())


def test_an_ending_whose_claim_was_never_answered_is_due_again(tmp_path: Path) -> None:
    async def test() -> None:
        engine = await opened(None, tmp_path)
        try:
            owner = Owner(engine)
            await owner.enter()
            rows = EndingRows(engine, owner.id)
            await JobRows(engine).add(ENDED, [Span(0, 1, 0, 5)], ENDINGS)
            lost = await rows.claim()  # the caller never sees it, and so does not hold it
            found = await rows.claim()
            assert lost is not None
            assert found is not None
            assert (found.ending.kind, found.ending.attempts) == (lost.ending.kind, 1)
            assert await rows.claim([found]) is None, "it is in work"
        finally:
            await engine.dispose()

    asyncio.run(test())


@pytest.mark.parametrize("kind", [DESTINATION, WEBHOOK])
def test_endings_in_work_are_few_of_one_client_and_shared_by_all(run: Run, kind: str) -> None:
    async def test(store: Store) -> None:
        rows = EndingRows(store.one._engine, store.one.id, store.clock)
        for number in range(2 * AT_ONCE[kind]):
            for due, client in enumerate("abcde"):  # those of `a` are due for longer
                id_ = f"{client}{number}"
                ending = Ending(id_, kind, "x", WAITING, 0, float(due), None, None)
                await store.jobs.add(replace(ENDED, id=id_, client=client), [], [ending])
        held = list[Claimed]()
        while (found := await rows.claim(held)) is not None:
            held.append(found)
        assert len(held) == AT_ONCE[kind]
        assert [each.client for each in held[:5]] == [*"abcde"], "each client in turn"
        assert max(Counter(each.client for each in held).values()) <= OF_ONE[kind]

        for each in held:
            await rows.finish(each.ending, "done", "")
        held.clear()
        for client in "bcde":
            for number in range(2 * AT_ONCE[kind]):
                await store.jobs.remove(f"{client}{number}")
        while (found := await rows.claim(held)) is not None:
            held.append(found)
        assert len(held) == OF_ONE[kind], "of one client"

    run(test)


def test_a_fault_of_the_server_is_no_attempt_and_late_processes_change_nothing(run: Run) -> None:
    """Nine of them within a minute would else end a webhook at the first failure after that."""

    async def test(store: Store) -> None:
        engine = store.one._engine
        one, other = (EndingRows(engine, each.id, store.clock) for each in (store.one, store.other))
        await store.jobs.add(ENDED, [], ENDINGS[:1])
        for _ in range(20):
            found = await one.claim()
            assert found is not None
            assert found.ending.attempts == 0
            await one.postpone(found.ending, 5.0, "the disk is full", counts=False)
            assert await one.claim() is None
            store.clock.advance(5.0)
            for each in (store.one, store.other):
                await each.renew()
        late = await one.claim()
        assert late is not None
        await store.one.leave()
        taken = await other.claim()
        assert taken is not None
        assert taken.ending.attempts == 1
        await one.postpone(late.ending, 0.0, "it stood still")
        await store.one.enter()
        assert await one.claim() is None, "another process works on it"

    run(test)
