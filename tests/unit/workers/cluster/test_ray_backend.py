"""What a backend does when replicas are lost, without Ray: `Lossy` stands for its handle.

`tests/contract` runs the backend on a real Ray, and `tests/chaos/ray_cluster.py` kills its nodes.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from models.domain.deadline import Deadline
from models.domain.errors import (
    DeadlineExceeded,
    InternalError,
    Overloaded,
    Quarantined,
    WorkerLost,
)
from models.domain.image import Pixels
from models.domain.job import Labels, Outcome
from tests.fakes import FakeEngine, fake_job
from tests.worker_fixture import decode_fake, encode_fake, wait_until
from workers.cluster import incoming
from workers.cluster.backend import MAX_LOSSES, PAUSE, RayBackend
from workers.cluster.messages import CALL, Answer, Call, Description, Message, decode_answer
from workers.cluster.replica import Replica
from workers.cluster.serve_handle import ReplicaGone
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker


class Lossy:
    """Replicas in this process; `lose` returns how a call ends before it is answered, or None."""

    def __init__(self, lose: Callable[[Call], Exception | None]) -> None:
        self._lose = lose
        self.calls: list[list[bool]] = []
        self.answers: list[bytes] = []  # to messages to all, in place of the replica's
        worker = Worker(FakeEngine(), BatchLimits(max_batch_size=8, max_batch_pixels=1 << 20))
        worker.start()
        self.replica = Replica(worker, "one", Description([], None, 8), 8, decode_fake)

    async def compute(
        self, header: bytes, contents: list[Pixels], *, small: bool
    ) -> AsyncGenerator[Message, None]:
        call = CALL.decode(header)
        self.calls.append([each.alone for each in call.tasks])
        assert small
        messages = self.replica.compute(header, contents)
        yield await anext(messages)
        if (error := self._lose(call)) is not None:
            raise error
        async for message in messages:
            yield message

    async def ask_all(self, method: str, *arguments: object) -> list[bytes | None]:
        if self.answers:
            return [self.answers.pop()]
        answer = await getattr(self.replica, method)(*arguments)
        return [answer]


def within(
    lose: Callable[[Call], Exception | None],
    test: Callable[[RayBackend, Lossy], Coroutine[Any, Any, None]],
) -> None:
    async def run() -> None:
        workers = Lossy(lose)
        backend = RayBackend(workers, encode=encode_fake, report_every=0.05)
        try:
            await test(backend, workers)
        finally:
            await backend.aclose()
            workers.replica.worker.stop()

    asyncio.run(run())


def losing(times: int, *, died: bool) -> Callable[[Call], Exception | None]:
    left = times

    def lose(_call: Call) -> Exception | None:
        nonlocal left
        left -= 1
        return ReplicaGone(died) if left >= 0 else None

    return lose


def test_jobs_of_a_lost_replica_are_sent_again() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        done = await asyncio.gather(*(backend.run(fake_job(n)) for n in range(5)))
        assert [each.result for each in done] == [Labels((n,), (1.0,)) for n in range(5)]
        assert len(workers.calls) == 2

    within(losing(1, died=True), test)


def test_a_job_that_two_replicas_died_with_is_computed_alone() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        await asyncio.gather(*(backend.run(fake_job(n)) for n in range(3)))
        assert workers.calls == [[False] * 3, [False] * 3, [True], [True], [True]]

    within(losing(2, died=True), test)


def test_a_job_that_ends_every_replica_is_given_up_and_its_content_refused() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        with pytest.raises(WorkerLost):
            await backend.run(fake_job(1))
        assert len(workers.calls) == MAX_LOSSES
        with pytest.raises(Quarantined):
            await backend.run(fake_job(1))

    within(losing(100, died=True), test)


def test_replicas_that_leave_are_no_losses() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        await backend.run(fake_job(1))
        assert len(workers.calls) == MAX_LOSSES + 3
        assert not any(alone for call in workers.calls for alone in call)

    within(losing(MAX_LOSSES + 2, died=False), test)


def test_a_job_without_a_replica_ends_at_its_deadline() -> None:
    async def test(backend: RayBackend, _workers: Lossy) -> None:
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await backend.run(fake_job(1, deadline=Deadline.after(0.2, start)))

    within(losing(1000, died=False), test)


def test_what_rays_queue_refuses_is_an_error_of_ours() -> None:
    async def test(backend: RayBackend, _workers: Lossy) -> None:
        with pytest.raises(Overloaded):
            await backend.run(fake_job(1))

    within(lambda _call: Overloaded("full", 1.0), test)


def test_a_replica_with_other_weights_is_noticed() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        await backend.run(fake_job(1))
        assert not backend.replicas.changed
        workers.replica._identity = "other"
        await backend.run(fake_job(2))
        assert backend.replicas.changed

    within(losing(0, died=True), test)


def test_without_replicas_the_backend_is_not_alive() -> None:
    async def test(backend: RayBackend, _workers: Lossy) -> None:
        await wait_until(lambda: backend.load().alive)
        backend.replicas.keep(set())
        assert not backend.load().alive
        assert backend.replicas.absence() > 0

    within(losing(0, died=True), test)


def test_a_job_whose_answer_cannot_be_read_fails_and_its_neighbours_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decode(answer: Answer, array: Pixels | None, now: float) -> Outcome:
        if answer.done.class_ids == (1,):
            raise ValueError("not the shape of an image")
        return decode_answer(answer, array, now)

    monkeypatch.setattr(incoming, "decode_answer", decode)

    async def test(backend: RayBackend, _workers: Lossy) -> None:
        async with asyncio.timeout(5):
            done = await asyncio.gather(
                *(backend.run(fake_job(n)) for n in range(3)), return_exceptions=True
            )
        assert [type(each).__name__ for each in done] == ["Completed", "InternalError", "Completed"]

    within(losing(0, died=True), test)


def test_a_job_that_cannot_be_encoded_fails() -> None:
    def encode(_operation: object) -> object:
        raise ValueError("no such operation")

    async def test(backend: RayBackend, _workers: Lossy) -> None:
        backend._encode = encode
        async with asyncio.timeout(5):
            with pytest.raises(InternalError):
                await backend.run(fake_job(1))

    within(losing(0, died=True), test)


def test_a_report_that_cannot_be_read_does_not_end_the_questions() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        workers.answers = [b"no report"]
        await wait_until(lambda: not workers.answers)
        backend.replicas.keep(set())
        await wait_until(lambda: backend.load().alive)

    within(losing(0, died=True), test)


def test_nothing_is_sent_after_the_drain() -> None:
    async def test(backend: RayBackend, workers: Lossy) -> None:
        backend._drain_timeout = 0.2
        job = asyncio.create_task(backend.run(fake_job(1)))
        await wait_until(lambda: bool(workers.calls))
        await backend.aclose()
        calls = len(workers.calls)
        with pytest.raises(WorkerLost, match="stopped"):
            await job
        await asyncio.sleep(2 * PAUSE)
        assert len(workers.calls) == calls

    within(losing(1000, died=False), test)
