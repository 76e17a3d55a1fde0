"""Jobs that expire: any number of them, and what is still to be done for them."""

from dataclasses import replace

import pytest

from app.jobs.store.endings import DESTINATION, WAITING, WEBHOOK, Ending, EndingRows
from app.jobs.store.jobs import AT_ONCE
from app.jobs.store.tables import State
from tests.job_store import RETENTION, SPANS, Run, Store, job


def ending(kind: str) -> Ending:
    return Ending("1", kind, kind, WAITING, 0, 0.0, None, None)


@pytest.mark.slow
def test_more_jobs_than_a_statement_has_parameters_expire_part_by_part(run: Run) -> None:
    async def test(store: Store) -> None:
        count = AT_ONCE + 5
        for number in range(count):
            ended = replace(job(f"{number}"), state=State.SUCCEEDED, expires=1000.0)
            await store.jobs.add(ended, [])
        names = [f"{number}" for number in range(70_000)]
        assert await store.jobs.known(names) == {*names[:count]}
        store.clock.advance(1)
        first = await store.jobs.expire()
        assert len(first) == AT_ONCE
        assert {*first, *await store.jobs.expire()} == {*names[:count]}
        assert await store.jobs.expire() == []

    run(test)


def test_webhooks_are_tried_although_the_job_has_expired_meanwhile(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS, [ending(WEBHOOK)])
        await store.jobs.cancel("1", RETENTION)
        rows = EndingRows(store.one._engine, store.one.id, store.clock)
        (first,) = await rows.claim(9)
        await rows.postpone(first, 2 * RETENTION, "the receiver does not answer")
        store.clock.advance(RETENTION + 1)
        assert await store.jobs.expire() == ["1"]
        store.clock.advance(2 * RETENTION)
        await store.one.renew()
        await store.jobs.forget(store.clock())
        await rows.forget()
        (again,) = await rows.claim(9)
        assert again.kind == WEBHOOK
        await rows.finish(again, "done", "200")
        await store.jobs.forget(store.clock())
        assert await store.jobs.find("1") is None

    run(test)


def test_a_process_that_stood_still_changes_no_ending_that_is_done(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS, [ending(DESTINATION)])
        await store.jobs.cancel("1", RETENTION)
        rows = EndingRows(store.one._engine, store.one.id, store.clock)
        (found,) = await rows.claim(9)
        await rows.finish(found, "done", "there")
        await rows.finish(found, "failed", "late")
        assert (await rows.of(["1"]))["1"][DESTINATION].state == "done"

    run(test)
