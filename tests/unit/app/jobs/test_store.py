"""Jobs, chunks and endings in a database: claims, commits, leases, cancelling and expiry."""

import asyncio
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.jobs.files import DataFolder
from app.jobs.store import (
    DESTINATION,
    HOLD,
    JOBS_OF_ONE,
    LEASE,
    META,
    WEBHOOK,
    Database,
    Ending,
    Span,
    State,
)
from tests.job_store import RETENTION, SPANS, Store, claimed, job, stored, stores


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").database()
    with stores(url, tmp_path) as found:
        yield found


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    with stores(None, tmp_path) as found:
        yield found


# Chunks.


async def test_a_job_ends_when_all_chunks_are_committed_each_once(store: Store) -> None:
    one, other = store.one, store.other
    await one.add(job(), SPANS)
    claims = [await claimed(each) for each in (one, other, one)]
    assert [each.span for each in claims] == SPANS
    assert await one.claim("1") is None
    assert await one.runnable(10) == []
    first, second, third = map(stored, claims)
    for each, failed in ((third, 1), (first, 2)):
        assert await one.commit(each, failed)
        assert not await one.commit(each, failed)
    assert not await one.commit(second, 0), "not its own"
    found = await store.job()
    assert (found.state, found.done, found.failed, found.stored) == (State.RUNNING, 20, 3, 205)
    store.clock.advance(5)
    assert await other.commit(second, 0)
    found = await store.job()
    assert (found.state, found.done, found.finished) == (State.SUCCEEDED, 30, 1005.0)
    rows = await one.results("1", 0, 10)
    assert [(row, at) for row, _, _, at, _ in rows] == [(0, 200), (10, 0), (20, 100)]
    assert [each.row for each in await one.results("1", 10, 1)] == [10]
    assert [each.row for each in await one.results("1", 29, 10)] == [20]
    assert await one.results("1", 30, 10) == []


@pytest.mark.parametrize(("most", "state"), [(2, State.FAILED), (3, State.RUNNING)])
async def test_a_job_of_which_too_many_images_failed_ends_and_keeps_its_results(
    store: Store, most: int, state: State
) -> None:
    await store.one.add(job(max_failures=most), SPANS)
    first, second = await claimed(store.one), await claimed(store.other)
    assert await store.one.commit(stored(first), 3)
    found = await store.job()
    assert (found.state, found.done, found.failed) == (state, 10, 3)
    assert (found.problem or {}).get("code") == (
        "too_many_failures" if state is State.FAILED else None
    )
    assert await store.other.commit(stored(second), 0) is (state is State.RUNNING)
    assert len(await store.one.results("1", 0, 10)) == (1 if state is State.FAILED else 2)


async def test_why_a_job_waits_is_shown_until_it_gets_on_or_is_cancelled(store: Store) -> None:
    one, why = store.one, {"detail": "full"}
    for id_ in ("1", "2"):
        await one.add(job(id_), SPANS)
        await one.note(id_, problem=why)
        assert (await store.job(id_)).problem == why
    claim = await claimed(one)
    assert (await store.job()).problem == why, "it may find no room again"
    await one.commit(stored(claim), 0)
    assert (await store.job()).problem is None
    await one.cancel("2")
    assert (await store.job("2")).problem is None, "a cancelled job has not failed"
    await one.note("2", problem=why)
    assert (await store.job("2")).problem is None


async def test_chunks_of_a_process_that_died_are_taken_over_and_its_late_commit_does_not_count(
    store: Store,
) -> None:
    one, other = store.one, store.other
    await one.add(job(), SPANS)
    claim = await claimed(one)
    store.clock.advance(LEASE / 2)
    await one.renew(["1"])
    store.clock.advance(LEASE / 2 + 1)
    assert await other.release_abandoned() == 0
    store.clock.advance(LEASE / 2)
    await one.cancel("2")
    assert await other.release_abandoned() == 1
    await one.renew(["1"])
    again = await claimed(other)
    assert (again.span, again.attempts) == (claim.span, 2)
    assert not await one.commit(stored(claim), 0)
    assert await other.commit(stored(again), 0)
    assert (await store.job()).done == 10


async def test_a_job_with_a_limit_is_worked_on_by_one_process_at_a_time(store: Store) -> None:
    one, other = store.one, store.other
    await one.add(job(concurrency=2), SPANS)
    first = await claimed(one)
    assert await other.claim("1") is None
    assert await other.runnable(10) == []
    assert [each.id for each in await one.runnable(10)] == ["1"]
    second = await claimed(one)
    await one.commit(stored(first), 0)
    assert await other.claim("1") is None
    await one.commit(stored(second), 0)
    assert [each.id for each in await other.runnable(10)] == ["1"]
    assert (await claimed(other)).number == 2
    for id_ in map(str, range(2, 20)):  # also where both ask at once
        await one.add(job(id_, concurrency=2), SPANS)
        claims = await asyncio.gather(one.claim(id_), other.claim(id_))
        assert len([each for each in claims if each]) == 1


async def test_a_released_chunk_is_free_at_once_and_counts_as_no_attempt(store: Store) -> None:
    await store.one.add(job(), SPANS)
    await claimed(store.one)
    await store.other.release(["1"])  # it has none
    assert (await claimed(store.other)).number == 1
    await store.one.release(["1"])
    again = await claimed(store.other)
    assert (again.number, again.attempts) == (0, 1)


async def test_claims_of_many_processes_at_once_are_of_different_chunks(store: Store) -> None:
    spans = [Span(n, 1, n, n + 1) for n in range(20)]
    await store.one.add(job(total=20), spans)
    claims = await asyncio.gather(*[claimed(store.one) for _ in spans])
    assert sorted(each.number for each in claims) == [*range(20)]
    await asyncio.gather(*[store.one.commit(stored(each), 0) for each in claims])
    rows = await store.one.results("1", 0, 100)
    assert [each.row for each in rows] == [*range(20)]


# Jobs.


async def test_a_key_makes_one_job_for_each_client(store: Store) -> None:
    one = store.one
    first = await one.add(job("1", key="k"), SPANS)
    assert await one.add(job("2", key="k"), SPANS) == first
    assert (await one.add(job("3", "you", key="k"), SPANS)).id == "3"
    for id_ in ("4", "5"):
        assert (await one.add(job(id_), SPANS)).id == id_
    assert await one.find("1", "you") is None
    assert [each.id for each in await one.listed("me", None, None, 2)] == ["5", "4"]
    assert [each.id for each in await one.listed("me", None, "4", 2)] == ["1"]
    assert await one.listed("me", "running", None, 2) == []
    assert await one.stored() == {"me": 15, "you": 5}


async def test_the_first_jobs_of_all_clients_are_worked_on_before_the_second_jobs(
    store: Store,
) -> None:
    for number in range(JOBS_OF_ONE + 2):
        await store.one.add(job(f"a{number}", "a"), SPANS)
    for id_ in ("b1", "b2", "c1"):
        await store.one.add(job(id_, id_[0]), SPANS)
    found = [each.id for each in await store.one.runnable(100)]
    assert {*found[:3]} == {"a0", "b1", "c1"}
    assert {*found[3:5]} == {"a1", "b2"}
    assert found[5:] == [f"a{number}" for number in range(2, JOBS_OF_ONE)]
    found = [each.id for each in await store.one.runnable(2, ["a"], ["b1"])]
    assert {*found} == {"b2", "c1"}


async def test_a_job_in_work_is_cancelled_when_its_last_chunk_is_given_back(store: Store) -> None:
    await store.one.add(job(), SPANS)
    await claimed(store.one)
    await store.one.cancel("1")
    assert await store.one.states(["1"]) == {"1": State.CANCELLING}
    assert await store.other.claim("1") is None
    assert not await store.one.remove("1")
    await store.one.release(["1"])
    assert await store.one.states(["1"]) == {"1": State.CANCELLED}
    assert await store.one.remove("1")
    assert await store.one.find("1") is None


async def test_a_queued_job_is_cancelled_at_once_and_expires(store: Store) -> None:
    one = store.one
    await one.add(job(key="k"), SPANS)
    await one.cancel("1")
    assert await one.by_state() == {"cancelled": 1}
    assert await one.expire() == []
    assert await one.kept() == {"1"}
    store.clock.advance(RETENTION + 1)
    assert await one.expire() == ["1"]
    assert await one.by_state() == {"expired": 1}
    assert await one.kept() == set()
    await one.forget()
    assert await one.by_state() == {"expired": 1}
    store.clock.advance(RETENTION)
    await one.forget()
    assert await one.by_state() == {}


async def test_jobs_that_come_to_two_processes_at_once_are_counted_together(store: Store) -> None:
    class Refused(Exception):
        pass

    def check(unfinished: int, _stored: object) -> None:
        if unfinished > 2:
            raise Refused

    one = store.one
    await one.add(job("first"), SPANS)
    await one.add(job("of another", "you"), SPANS)
    adding = [one.add(job(f"{n}", key=f"{n}"), SPANS, (), check) for n in range(4)]
    found = await asyncio.gather(*adding, return_exceptions=True)
    assert sum(isinstance(each, Refused) for each in found) == 3, found
    usages = list[object]()
    await one.add(job("last"), SPANS, (), lambda *usage: usages.append(usage))
    assert usages == [(3, {"me": 15, "you": 5})]


# Endings.


async def ended(store: Store, id_: str, *kinds: str, client: str = "me", due: float = 0) -> None:
    """Add a finished job with endings."""
    endings = [Ending(id_, kind, kind, due=due) for kind in kinds]
    finished = job(id_, client, state=State.SUCCEEDED, finished=1000.0, expires=1000.0 + RETENTION)
    await store.one.add(finished, [], endings)


async def test_an_ending_is_done_by_one_process_and_by_another_one_if_that_dies(
    store: Store,
) -> None:
    one, other = store.one, store.other
    await ended(store, "1", WEBHOOK, DESTINATION)
    (first,) = await one.claim_endings(9)
    assert first.kind == DESTINATION, "the webhook waits for the results"
    for _ in range(10):  # it takes hours, and its process lives
        store.clock.advance(HOLD / 2)
        await one.postpone(first, HOLD, "in work")
        assert await other.claim_endings(9) == await one.claim_endings(9) == []
    store.clock.advance(HOLD)
    (second,) = await other.claim_endings(9)
    assert (second.kind, second.attempts) == (DESTINATION, 1)
    await one.postpone(first, 0.0, "it stood still")
    assert await one.claim_endings(9) == [], "another process works on it"
    for _ in range(20):  # a fault of the server is no attempt
        await other.postpone(second, 5.0, "the disk is full", counts=False)
        assert await other.claim_endings(9) == []
        store.clock.advance(5)
        (second,) = await other.claim_endings(9)
        assert second.attempts == 1
    await other.finish(second, "done", "there")
    await one.finish(first, "failed", "late")
    assert (await one.endings_of(["1"]))["1"][DESTINATION].state == "done"
    assert [each.kind for each in await one.claim_endings(9)] == [WEBHOOK]


async def test_each_ending_is_claimed_by_one_process_the_longest_due_first(store: Store) -> None:
    for number in range(60):
        await ended(store, f"{number}", WEBHOOK, due=60 - number)
    first = await store.one.claim_endings(5)
    assert [each.job for each in first] == ["59", "58", "57", "56", "55"]
    found = await asyncio.gather(*(each.claim_endings(100) for each in (store.one, store.other)))
    counts = Counter(each.job for each in (*first, *found[0], *found[1]))
    assert len(counts) == counts.total() == 60


async def test_webhooks_are_tried_although_the_job_has_expired_meanwhile(store: Store) -> None:
    one = store.one
    await ended(store, "1", WEBHOOK)
    (first,) = await one.claim_endings(9)
    await one.postpone(first, 2 * RETENTION, "the receiver does not answer")
    store.clock.advance(RETENTION + 1)
    assert await one.expire() == ["1"]
    store.clock.advance(2 * RETENTION)
    await one.forget()
    (again,) = await one.claim_endings(9)
    assert again.kind == WEBHOOK
    await one.finish(again, "done", "200")
    await one.forget()
    assert await one.find("1") is None


# The database itself.


async def test_a_cancelled_transaction_ends_and_leaves_sqlite_unlocked(
    tmp_path: Path, sqlite: Store
) -> None:
    """Its connection would else stay locked, and other processes wait for 30 seconds."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow(connection: Any) -> None:
        connection.execute(update(META).values(value=META.c.value))
        begun.set()
        goes_on.wait(60)

    working = asyncio.create_task(sqlite.one.database.run(slow))
    await asyncio.to_thread(begun.wait)
    working.cancel()
    asyncio.get_running_loop().call_later(0.1, goes_on.set)
    with pytest.raises(asyncio.CancelledError):
        await working
    with sqlite3.connect(tmp_path / "jobs.sqlite3", timeout=0) as connection:
        connection.execute("BEGIN IMMEDIATE")
    connection.close()


@pytest.mark.parametrize("name", ["lock", "jobs.sqlite3"])
def test_a_data_folder_with_files_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"the database of jobs at .* cannot be used"):
        Database(None, tmp_path)


def test_tables_of_a_newer_release_are_refused(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    asyncio.run(database.run(lambda connection: connection.execute(update(META).values(value=99))))
    database.close()
    with pytest.raises(ValueError, match=r"made by newer software \(version 99"):
        Database(None, tmp_path)


def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path: Path) -> None:
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/jobs"
    with pytest.raises(ValueError, match=r"me:\*\*\*@127.0.0.1:1/jobs cannot be used") as caught:
        Database(url, tmp_path)
    assert "secret" not in str(caught.value)


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of a folder and of all that is in it, by name."""
    return {each.name: each.stat().st_mode & 0o777 for each in (folder, *folder.iterdir())}


@pytest.mark.parametrize("earlier", [False, True])
def test_only_the_owner_may_read_the_data_folder(tmp_path: Path, earlier: bool) -> None:
    root, before = tmp_path / "parent" / "data", os.umask(0)
    try:
        if earlier:
            (root / "jobs").mkdir(parents=True)
        DataFolder(root).make()
        database = Database(None, root)
        asyncio.run(
            database.run(lambda connection: connection.execute(update(META).values(value=8)))
        )
        found = modes(root)
        database.close()
    finally:
        os.umask(before)
    assert {"jobs.sqlite3", "jobs.sqlite3-wal", "jobs.sqlite3-shm", "lock"} < found.keys()
    folders = {"data": 0o700, "jobs": found["jobs"] if earlier else 0o700}
    assert found == {name: folders.get(name, 0o600) for name in found}
