"""Jobs in the background are computed by an engine of their own, on threads of low priority."""

import os
import threading
from collections.abc import Sequence

import pytest

from models.domain.job import Job, Lane
from models.thread_priority import NICER, NICEST, can_lower_priority
from tests.fakes import FakeEngine, Gate, Inbox, fake_job
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

LIMITS = BatchLimits(8, 1 << 30)


def test_interactive_jobs_do_not_wait_for_a_batch_in_the_background() -> None:
    gate, inbox = Gate(), Inbox()
    worker = Worker(FakeEngine(), LIMITS, background=FakeEngine(on_collect=gate))
    worker.start()
    try:
        behind = worker.submit(fake_job(1, lane=Lane.BACKGROUND), inbox)
        gate.wait_reached()
        for lane in (Lane.INTERACTIVE, Lane.BULK):
            assert inbox.answer_of(worker.submit(fake_job(2, lane=lane), inbox)) == 2
        assert inbox.all_of(behind) == []
        gate.open()
        assert inbox.answer_of(behind) == 1
    finally:
        gate.open()
        worker.stop()


def test_a_suspect_in_the_background_is_alone_on_both_engines() -> None:
    gate, inbox, order = Gate(), Inbox(), list[int]()
    worker = Worker(FakeEngine(on_collect=gate), LIMITS, background=FakeEngine())
    worker.start()
    try:
        first = worker.submit(fake_job(1), inbox)
        gate.wait_reached()
        alone = worker.submit(fake_job(2, lane=Lane.BACKGROUND), inbox, alone=True)
        after = worker.submit(fake_job(3, lane=Lane.BACKGROUND), inbox)
        assert inbox.all_of(alone) == inbox.all_of(after) == []
        gate.open()
        order += [inbox.answer_of(each) for each in (first, alone, after)]
        assert order == [1, 2, 3]
    finally:
        gate.open()
        worker.stop()


@pytest.mark.skipif(not can_lower_priority(), reason="the system has no priorities of threads")
def test_only_the_threads_of_the_background_have_a_low_priority() -> None:
    found: dict[str, int] = {}

    def noting(name: str) -> FakeEngine:
        def note(_jobs: Sequence[Job]) -> None:
            found[name] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

        return FakeEngine(on_collect=note)

    inbox = Inbox()
    worker = Worker(noting("front"), LIMITS, background=noting("behind"))
    worker.start()
    try:
        for lane in (Lane.INTERACTIVE, Lane.BACKGROUND):
            assert inbox.answer_of(worker.submit(fake_job(1, lane=lane), inbox)) == 1
    finally:
        worker.stop()
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    assert found == {"front": usual, "behind": min(usual + NICER, NICEST)}
