"""The work of each worker, added up over front ends."""

import os

import pytest

from app.admission.counters import MOST_WORKERS, Counters


def test_front_ends_see_each_other_s_work() -> None:
    shared = Counters.create(2)
    assert shared.fd is not None
    one, other = (Counters.attach(shared.fd, 2).work_of(3) for _ in range(2))
    one.add(0, 500)
    other.add(0, 70)
    other.add(2, 9)
    assert one.totals() == other.totals() == [570, 0, 9]
    one.add(0, -500)
    assert other.totals() == [70, 0, 9]
    shared.close()


def test_the_work_of_a_front_end_that_ended_is_forgotten() -> None:
    shared = Counters.create(1)
    assert shared.fd is not None
    work = Counters.attach(shared.fd, 1).work_of(2)
    work.add(1, 500)
    shared.forget(os.getpid())
    assert work.totals() == [0, 0]
    shared.close()


def test_a_single_process_counts_its_own_work() -> None:
    work = Counters().work_of(1)
    work.add(0, 3)
    assert work.totals() == [3]


def test_too_many_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 128"):
        Counters().work_of(MOST_WORKERS + 1)
