"""Jobs in the background are computed by an engine of their own, on threads of low priority."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from models.domain.job import Job, Lane
from models.threads import NICER, can_lower_priority
from tests.fakes import FakeEngine, FakeSlot, Gate, Inbox, fake_job
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

LIMITS = BatchLimits(8, 1 << 30)


@contextmanager
def started(worker: Worker[FakeSlot], gate: Gate | None = None) -> Iterator[None]:
    """Run a worker, whose gate opens at the latest at the end."""
    worker.start()
    try:
        yield
    finally:
        if gate is not None:
            gate.open()
        worker.stop()


def test_interactive_jobs_do_not_wait_for_a_batch_in_the_background() -> None:
    gate, inbox = Gate(), Inbox()
    worker = Worker(FakeEngine(), LIMITS, background=FakeEngine(on_collect=gate))
    with started(worker, gate):
        behind = worker.submit(fake_job(1, lane=Lane.BACKGROUND), inbox)
        gate.wait_reached()
        for lane in (Lane.INTERACTIVE, Lane.BULK):
            assert inbox.answer_of(worker.submit(fake_job(2, lane=lane), inbox)) == 2
        assert inbox.all_of(behind) == []
        gate.open()
        assert inbox.answer_of(behind) == 1


@pytest.mark.skipif(not can_lower_priority(), reason="the system has no priorities of threads")
def test_only_the_threads_of_the_background_have_a_low_priority() -> None:
    found: dict[str, int] = {}

    def noting(name: str) -> FakeEngine:
        def note(_jobs: Sequence[Job]) -> None:
            found[name] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

        return FakeEngine(on_collect=note)

    inbox = Inbox()
    worker = Worker(noting("front"), LIMITS, background=noting("behind"))
    with started(worker):
        for lane in (Lane.INTERACTIVE, Lane.BACKGROUND):
            assert inbox.answer_of(worker.submit(fake_job(1, lane=lane), inbox)) == 1
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    assert found == {"front": usual, "behind": min(usual + NICER, 19)}
