"""Endings of jobs in a database: each is done by one process, and by another one if that dies."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

from app.jobs.store.database import LEASE, Owner, opened
from app.jobs.store.endings import DESTINATION, OF_ONE, WAITING, WEBHOOK, Ending, EndingRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, Span, State
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

            (first,) = await one.claim(9)
            assert first.kind == DESTINATION, "the webhook waits for the results"
            for _ in range(10):  # it takes hours, and its owner lives
                clock.advance(LEASE / 2)
                for each in owners:
                    await each.renew()
                assert await other.claim(9) == await one.claim(9, [first]) == []

            await owners[1].renew()
            clock.advance(LEASE / 2)
            await owners[1].renew()
            clock.advance(LEASE / 2 + 1)  # the lease of the first one has ended
            (second,) = await other.claim(9)
            assert (second.kind, second.attempts) == (DESTINATION, 1)
            await other.postpone(second, 5.0, "try again")
            assert await other.claim(9) == []
            clock.advance(6)
            await owners[1].renew()
            (third,) = await other.claim(9)
            await other.finish(third, "done", "there")
            (last,) = await other.claim(9)
            assert last.kind == WEBHOOK
            await owners[1].leave()
            assert len(await one.claim(9)) == 1
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
            (lost,) = await rows.claim(9)  # the caller never sees it, and so does not hold it
            (found,) = await rows.claim(9)
            assert (found.kind, found.attempts) == (lost.kind, 1)
            assert await rows.claim(9, [found]) == [], "it is in work"
        finally:
            await engine.dispose()

    asyncio.run(test())


def test_endings_in_work_are_few_of_one_client_and_shared_by_all(run: Run) -> None:
    async def test(store: Store) -> None:
        rows = EndingRows(store.one._engine, store.one.id, store.clock)
        for number in range(2 * OF_ONE):
            for due, client in enumerate("abc"):  # those of `a` are due for longer
                id_ = f"{client}{number}"
                ending = Ending(id_, WEBHOOK, "x", WAITING, 0, float(due), None, None)
                await store.jobs.add(replace(ENDED, id=id_, client=client), [], [ending])
        first = await rows.claim(5)
        assert [each.job[0] for each in first] == [*"abcab"], "each client in turn"
        held = first + await rows.claim(100, first)
        assert Counter(each.job[0] for each in held) == dict.fromkeys("abc", OF_ONE)
        assert await rows.claim(100, held) == []

    run(test)


def test_a_fault_of_the_server_is_no_attempt_and_late_processes_change_nothing(run: Run) -> None:
    """Nine of them within a minute would else end a webhook at the first failure after that."""

    async def test(store: Store) -> None:
        engine = store.one._engine
        one, other = (EndingRows(engine, each.id, store.clock) for each in (store.one, store.other))
        await store.jobs.add(ENDED, [], ENDINGS[:1])
        for _ in range(20):
            (found,) = await one.claim(9)
            assert found.attempts == 0
            await one.postpone(found, 5.0, "the disk is full", counts=False)
            assert await one.claim(9) == []
            store.clock.advance(5.0)
            for each in (store.one, store.other):
                await each.renew()
        (late,) = await one.claim(9)
        await store.one.leave()
        (taken,) = await other.claim(9)
        assert taken.attempts == 1
        await one.postpone(late, 0.0, "it stood still")
        await store.one.enter()
        assert await one.claim(9) == [], "another process works on it"

    run(test)
