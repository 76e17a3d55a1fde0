"""The choice of a worker, without processes and clocks."""

import asyncio
from typing import Any

import pytest

from models.domain.job import Job
from tests.fakes import fake_job
from workers.backends.routing import MOST_KINDS, UNKNOWN, JobTimes, OwnWork, Router
from workers.ipc.frames import Done, Times
from workers.ipc.worker_client import Line, Pending

SAME = [(0, "cuda:0"), (1, "cuda:1")]


class _OnDevice:
    """What the router reads of a line."""

    def __init__(self, device: str) -> None:
        self.device = device


def pending(n_pixels: int = 1) -> Pending:
    waiter: asyncio.Future[Any] = asyncio.Future(loop=_LOOP)
    return Pending(1, fake_job(1, n_pixels=n_pixels), None, waiter)


_LOOP = asyncio.new_event_loop()


def times(seconds: float, size: int = 1) -> Times:
    """Return the times of a batch that computed for so long."""
    return (0.0, 0.0, 0.0, seconds, 0.0, size, 64, "full", 0.0, "")


def sent(router: Router, n: int, devices: list[tuple[int, str]]) -> list[int]:
    """Return how many of `n` jobs each worker got, while none is answered."""
    counts = [0] * len(devices)
    for _ in range(n):
        counts[router.choose(pending(), devices)] += 1
    return counts


def taught(router: Router, device: str, seconds: float) -> None:
    """Let the router see an answer of a device that took so long."""
    one = pending()
    router.choose(one, [(0, device)])
    line: Any = _OnDevice(device)
    one.line = line
    router.ended(one, Done(1, trace=times(seconds)))


def test_equal_workers_get_equal_numbers_of_jobs() -> None:
    assert sent(Router(OwnWork(2)), 40, SAME) == [20, 20]


def test_a_worker_that_answers_gets_the_next_job() -> None:
    router, jobs = Router(OwnWork(2)), [pending() for _ in range(4)]
    for each in jobs:
        router.choose(each, SAME)
    router.ended(jobs[1])
    assert router.choose(pending(), SAME) == jobs[1].worker


def test_a_gpu_of_half_the_speed_gets_half_as_many_images() -> None:
    router = Router(OwnWork(2))
    taught(router, "cuda:0", 0.001)
    taught(router, "cuda:1", 0.002)
    assert sent(router, 300, SAME) == [200, 100]


def test_one_long_job_counts_as_much_as_many_short_ones() -> None:
    work = OwnWork(2)
    router = Router(work)
    work.add(0, 10 * UNKNOWN)
    assert sent(router, 10, SAME) == [0, 10]


def test_work_that_other_front_ends_have_given_counts() -> None:
    work = OwnWork(2)
    here, there = Router(work), Router(work)
    assert sent(there, 1, [SAME[0]]) == [1]
    assert here.choose(pending(), SAME) == 1


def test_nothing_is_left_when_all_is_answered_or_lost() -> None:
    work = OwnWork(2)
    router, jobs = Router(work), [pending() for _ in range(9)]
    for each in jobs:
        router.choose(each, SAME)
    for each in jobs:
        router.ended(each)
    assert work.totals() == [0, 0]


def test_a_lone_worker_gets_jobs_wherever_it_is() -> None:
    assert Router(OwnWork(2)).choose(pending(), [SAME[1]]) == 1


def test_times_are_those_of_the_device_the_kind_and_the_size() -> None:
    known, small, large = JobTimes(), fake_job(1), fake_job(1, n_pixels=1000)
    assert known.expected("cuda:0", small) == UNKNOWN + 1
    known.learn("cuda:0", small, times(0.064, size=64))
    known.learn("cuda:0", large, times(0.5))
    assert round(known.expected("cuda:0", small), -5) == 1_000_000
    assert round(known.expected("cuda:0", large), -5) == 500_000_000
    assert known.expected("cuda:1", small) == known.expected("cuda:0", small)
    known.learn("cuda:1", small, times(0.25))
    assert round(known.expected("cuda:1", small), -5) == 250_000_000


def test_a_kind_that_is_used_all_the_time_is_not_forgotten_for_new_ones() -> None:
    known, often = JobTimes(), fake_job(1)
    for n in range(MOST_KINDS):
        known.learn("cuda:0", often, times(0.5))
        known.learn("cuda:0", fake_job(key=str(n)), times(0.001))
        assert known.expected("cuda:0", often) > 100 * UNKNOWN


def test_a_line_without_a_welcome_has_no_device() -> None:
    hooks: Any = None
    assert Line(hooks).device == ""


def test_what_a_job_takes_is_looked_up_once_for_each_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    expected = JobTimes.expected

    def noted(times: JobTimes, device: str, job: Job) -> int:
        looked.append(device)
        return expected(times, device, job)

    monkeypatch.setattr(JobTimes, "expected", noted)
    router = Router(OwnWork(128))
    taught(router, "cuda:0", 0.1)
    looked.clear()
    router.choose(pending(), [(n, f"cuda:{n % 8}") for n in range(128)])
    assert sorted(looked) == [f"cuda:{n}" for n in range(8)]
