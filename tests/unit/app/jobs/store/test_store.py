"""Jobs and chunks in a database: claims, commits, leases, cancelling and expiry."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from app.jobs.store.database import LEASE, Owner, opened
from app.jobs.store.tables import META, JobUsage, Span, State
from tests.job_store import RETENTION, SPANS, Run, Store, claimed, job, stored


def test_a_job_ends_when_all_chunks_are_committed_each_once(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        claims = [await claimed(store, each) for each in (store.one, store.other, store.one)]
        assert [each.span for each in claims] == SPANS
        assert await store.chunks.claim("1", store.one.id) is None
        assert await store.jobs.runnable(10, store.one.id) == []
        first, second, third = map(stored, claims, (2, 0, 1))
        for each in (third, first):
            assert await store.chunks.commit(each, store.one.id, RETENTION)
            assert not await store.chunks.commit(each, store.one.id, RETENTION)
        assert not await store.chunks.commit(second, store.one.id, RETENTION), "not its own"
        found = await store.jobs.find("1", "me")
        assert found is not None
        assert (found.state, found.done, found.failed, found.stored) == (State.RUNNING, 20, 3, 205)
        store.clock.advance(5)
        assert await store.chunks.commit(second, store.other.id, RETENTION)
        found = await store.jobs.find("1", "me")
        assert found is not None
        assert (found.state, found.done, found.finished) == (State.SUCCEEDED, 30, 1005.0)
        rows = await store.chunks.results("1", 0, 10)
        assert [(each.row, each.at) for each in rows] == [(0, 200), (10, 0), (20, 100)]
        assert [each.row for each in await store.chunks.results("1", 10, 1)] == [10]
        assert [each.row for each in await store.chunks.results("1", 29, 10)] == [20]
        assert await store.chunks.results("1", 30, 10) == []

    run(test)


def test_why_a_job_waits_is_shown_until_it_gets_on_or_is_cancelled(run: Run) -> None:
    async def shown(store: Store, id_: str) -> dict[str, object] | None:
        found = await store.jobs.find(id_, "me")
        assert found is not None
        return found.problem

    async def test(store: Store) -> None:
        for id_ in ("1", "2"):
            await store.jobs.add(job(id_), SPANS)
            await store.jobs.note(id_, {"detail": "full"})
            assert await shown(store, id_) == {"detail": "full"}
        claim = await claimed(store, store.one)
        assert await shown(store, "1") == {"detail": "full"}, "it may find no room again"
        await store.chunks.commit(stored(claim), store.one.id, RETENTION)
        assert await shown(store, "1") is None
        await store.jobs.cancel("2", RETENTION)
        assert await shown(store, "2") is None, "a cancelled job has not failed"
        await store.jobs.note("2", {"detail": "full"})
        assert await shown(store, "2") is None

    run(test)


def test_chunks_of_a_process_that_died_are_taken_over_and_its_late_commit_does_not_count(
    run: Run,
) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        claim = await claimed(store, store.one)
        store.clock.advance(LEASE / 2)
        await store.other.renew()
        assert await store.chunks.release_abandoned() == 0
        store.clock.advance(LEASE / 2 + 1)
        assert await store.chunks.release_abandoned() == 1
        again = await claimed(store, store.other)
        assert (again.span, again.attempts) == (claim.span, 2)
        assert not await store.chunks.commit(stored(claim), store.one.id, RETENTION)
        assert await store.chunks.commit(stored(again), store.other.id, RETENTION)
        found = await store.jobs.find("1")
        assert found is not None
        assert found.done == 10

    run(test)


def test_a_job_with_a_limit_is_worked_on_by_one_process_at_a_time(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(replace(job(), concurrency=2), SPANS)
        first = await claimed(store, store.one)
        assert await store.chunks.claim("1", store.other.id) is None
        assert await store.jobs.runnable(10, store.other.id) == []
        assert [each.id for each in await store.jobs.runnable(10, store.one.id)] == ["1"]
        second = await claimed(store, store.one)
        await store.chunks.commit(stored(first), store.one.id, RETENTION)
        assert await store.chunks.claim("1", store.other.id) is None
        await store.chunks.commit(stored(second), store.one.id, RETENTION)
        assert [each.id for each in await store.jobs.runnable(10, store.other.id)] == ["1"]
        assert (await claimed(store, store.other)).number == 2

    run(test)


def test_a_released_chunk_is_free_at_once_and_counts_as_no_attempt(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        await claimed(store, store.one)
        await store.chunks.release(["1"], store.other.id)  # it has none
        assert (await claimed(store, store.other)).number == 1
        await store.chunks.release(["1"], store.one.id)
        again = await claimed(store, store.other)
        assert (again.number, again.attempts) == (0, 1)

    run(test)


def test_a_lease_of_a_dead_process_of_this_host_ends_when_another_one_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        await claimed(store, store.one)
        monkeypatch.setattr("app.jobs.store.database.began", lambda _pid: "another process")
        await store.other.leave()
        await store.other.enter()
        assert await store.chunks.release_abandoned() == 1

    run(test)


def test_a_process_that_stalled_until_its_lease_was_removed_begins_a_new_one(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        before = await claimed(store, store.one)
        store.clock.now += 102 * LEASE
        await Owner(store.other._engine, store.clock).enter()  # it removes old leases
        await store.other.renew()
        assert await store.chunks.release_abandoned() == 1
        await store.one.renew()
        assert not await store.chunks.commit(stored(before), store.one.id, RETENTION)
        after = await claimed(store, store.one)
        assert await store.chunks.release_abandoned() == 0, "its new lease does not count"
        assert await store.chunks.commit(stored(after), store.one.id, RETENTION)

    run(test)


def test_a_key_makes_one_job_for_each_client(run: Run) -> None:
    async def test(store: Store) -> None:
        first = await store.jobs.add(job("1", key="k"), SPANS)
        assert await store.jobs.add(job("2", key="k"), SPANS) == first
        assert (await store.jobs.add(job("3", client="you", key="k"), SPANS)).id == "3"
        assert (await store.jobs.add(job("4"), SPANS)).id == "4"
        assert (await store.jobs.add(job("5"), SPANS)).id == "5"
        assert await store.jobs.find("1", "you") is None
        listed = await store.jobs.listed("me", None, None, 2)
        assert [each.id for each in listed] == ["5", "4"]
        assert [each.id for each in await store.jobs.listed("me", None, "4", 2)] == ["1"]
        assert await store.jobs.listed("me", State.RUNNING, None, 2) == []
        stored = await store.jobs.stored()
        assert sum(stored.values()) == 20
        assert stored["me"] == 15

    run(test)


def test_a_job_in_work_is_cancelled_when_its_last_chunk_is_given_back(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        await claimed(store, store.one)
        await store.jobs.cancel("1", RETENTION)
        assert await store.jobs.states(["1"]) == {"1": State.CANCELLING}
        assert await store.chunks.claim("1", store.other.id) is None
        assert not await store.jobs.remove("1")
        await store.chunks.release(["1"], store.one.id)
        await store.jobs.end_cancelled(RETENTION)
        assert await store.jobs.states(["1"]) == {"1": State.CANCELLED}
        assert await store.jobs.remove("1")
        assert await store.jobs.find("1") is None

    run(test)


def test_a_queued_job_is_cancelled_at_once_and_expires(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(key="k"), SPANS)
        await store.jobs.cancel("1", RETENTION)
        assert await store.jobs.by_state() == {"cancelled": 1}
        assert await store.jobs.expire() == []
        assert await store.jobs.known(["1", "2"]) == {"1"}
        store.clock.advance(RETENTION + 1)
        assert await store.jobs.expire() == ["1"]
        assert await store.jobs.by_state() == {"expired": 1}
        assert await store.jobs.known(["1"]) == set()
        await store.jobs.forget(store.clock() - 2 * RETENTION)
        assert await store.jobs.by_state() == {"expired": 1}
        await store.jobs.forget(store.clock())
        assert await store.jobs.by_state() == {}

    run(test)


def test_the_rate_is_that_of_the_last_chunks(run: Run) -> None:
    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        assert await store.chunks.rate("1") is None
        for _ in range(2):
            claim = await claimed(store, store.one)
            store.clock.advance(2)
            await store.chunks.commit(stored(claim), store.one.id, RETENTION)
        assert await store.chunks.rate("1") == 5.0
        store.clock.advance(8)
        assert await store.chunks.rate("1") == 1.0

    run(test)


def test_claims_of_many_processes_at_once_are_of_different_chunks(run: Run) -> None:
    async def test(store: Store) -> None:
        spans = [Span(n, 1, n, n + 1) for n in range(20)]
        await store.jobs.add(job(total=20), spans)
        claims = await asyncio.gather(*[claimed(store, store.one) for _ in spans])
        assert sorted(each.number for each in claims) == [*range(20)]
        commits = [store.chunks.commit(stored(each), store.one.id, 1) for each in claims]
        await asyncio.gather(*commits)
        rows = await store.chunks.results("1", 0, 100)
        assert [each.row for each in rows] == [*range(20)]

    run(test)


def test_tables_of_a_newer_release_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        engine = await opened(None, tmp_path)
        async with engine.begin() as connection:
            await connection.execute(update(META).values(value=99))
        await engine.dispose()
        with pytest.raises(ValueError, match=r"made by newer software \(version 99"):
            await opened(None, tmp_path)

    asyncio.run(test())


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/jobs"
    with pytest.raises(ValueError, match=r"me:\*\*\*@127.0.0.1:1/jobs cannot be used") as caught:
        asyncio.run(opened(url, tmp_path))
    assert "secret" not in str(caught.value)


def test_two_processes_that_ask_at_once_never_share_a_job_with_a_limit_of_its_own(
    run: Run,
) -> None:
    async def test(store: Store) -> None:
        for number in range(40):
            id_ = f"{number}"
            await store.jobs.add(replace(job(id_), concurrency=2), SPANS)
            asked = [store.chunks.claim(id_, each.id) for each in (store.one, store.other)]
            claims = await asyncio.gather(*asked)
            assert len([each for each in claims if each]) == 1

    run(test)


def test_jobs_that_come_to_two_processes_at_once_are_counted_together(run: Run) -> None:
    class Refused(Exception):
        pass

    def check(found: JobUsage) -> None:
        if found.unfinished > 2:
            raise Refused

    async def test(store: Store) -> None:
        await store.jobs.add(job("first"), SPANS)
        await store.jobs.add(job("of another", "you"), SPANS)
        adding = [store.jobs.add(job(f"{n}", key=f"{n}"), SPANS, (), check) for n in range(4)]
        found = await asyncio.gather(*adding, return_exceptions=True)
        assert sum(isinstance(each, Refused) for each in found) == 3, found
        usage = await store.jobs.usage("me", "none")
        assert (usage.unfinished, usage.repeated) == (2, False)
        assert (usage.of_all, usage.of_client) == (15, 10)
        (kept,) = (each for each in found if not isinstance(each, BaseException) and each.key)
        assert (await store.jobs.usage("me", kept.key)).repeated

    run(test)


def test_results_of_a_job_that_has_failed_change_no_more(run: Run) -> None:
    """Its results may be in storage, and its webhook sent, when another process ends its chunk."""

    async def test(store: Store) -> None:
        await store.jobs.add(job(), SPANS)
        first, second = await claimed(store, store.one), await claimed(store, store.other)
        assert await store.chunks.commit(stored(first), store.one.id, RETENTION)
        await store.jobs.fail("1", {"detail": "the archive is missing"}, RETENTION)
        assert not await store.chunks.commit(stored(second), store.other.id, RETENTION)
        found = await store.jobs.find("1")
        assert found is not None
        assert (found.state, found.done) == (State.FAILED, 10)

    run(test)
