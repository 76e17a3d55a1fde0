"""Compare the simulation with measurements that it was not made from, before it predicts.

Each case runs one host and names what was measured. Rates in images a second, latencies in ms.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tools.scale import measured
from tools.scale.simulation.clock import Clock
from tools.scale.simulation.cpu_worker import CpuWorker
from tools.scale.simulation.gpu_host import Costs, Host, Seen
from tools.scale.simulation.jobs import ticket
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.ticket import Ticket

SEEDS = (1, 2, 3)
FORMS = {"raw": 1, "multipart": 16, "blurred_by_gpu": 1}
TWO = {"one": (1, 12, False), "two": (2, 24, True)}
"""GPUs, front ends, and whether the whole host is busy."""

GOAL = 0.1
"""The error that a case may have."""

Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """A closed loop: its connections, and the images of a request."""

    connections: int
    images: int


def simulated(costs: Costs, gpus: int, front_ends: int, load: Load, seconds: float = 1) -> Seen:
    """Return the medians over the seeds."""
    runs = [
        Host(costs, gpus, front_ends, seed).run(load.connections, load.images, seconds)
        for seed in SEEDS
    ]
    return Seen(
        *(
            statistics.median(getattr(run, name) for run in runs)
            for name in Seen.__dataclass_fields__
        )
    )


def case(group: str, name: str, what: str, real: float, found: float, note: str = "") -> Case:
    """Return a comparison; its error is a share of the measured figure."""
    return {
        "group": group,
        "case": name,
        "what": what,
        "measured": round(real, 2),
        "simulated": round(found, 2),
        "error": round(found / real - 1, 4),
        "note": note,
    }


def served(run: int) -> Iterator[Case]:
    """Yield the cases of a run of `serve_gpu` on one GPU, with CPU times of its own."""
    group = f"serve_gpu, run {run + 1}"
    parts = measured.result("serve_gpu")["runs"][run]["parts"]["darkroom"]["subsampled"]
    for form in ("raw", "multipart"):
        costs, best = measured.served(run, form), parts[form]["best"]
        for n, rate in parts[form]["images_per_second"].items():
            seen = simulated(costs, 1, 10, Load(int(n), FORMS[form]))
            note = ""
            if (form, n) in {("raw", "1"), ("raw", "512")}:
                note = "close to what the costs were taken from"
            name = f"{form}, {n} connections"
            yield case(group, name, "images/s", rate, seen.images_per_second, note)
            if int(n) == best["connections"]:
                yield case(group, name, "p50 ms", best["p50_ms"], seen.p50_ms)
                chosen = "the spread was chosen by this" if (run, form) == (0, "raw") else ""
                yield case(group, name, "p99 ms", best["p99_ms"], seen.p99_ms, chosen)


EARLIER = {"raw": (15.1, 23.3), "multipart": (16.2, 28.9), "blurred_by_gpu": (4.3, 5.7)}
"""Thousands of images a second on one GPU and on two, measured from outside at an early commit."""


def two_gpus(form: str) -> Iterator[Case]:
    """Yield the cases of `two_gpus_first`: one GPU, both in one server, and two servers."""
    costs = {whole: measured.two_gpus_costs(form, whole_host=whole) for whole in (False, True)}
    best: dict[str, float] = {}
    images = FORMS[form]
    for n in (256, 768):
        connections = n if images == 1 else n // 8
        for setup, (gpus, front_ends, whole) in TWO.items():
            seen = simulated(costs[whole], gpus, front_ends, Load(connections, images))
            rate = seen.images_per_second
            best[setup] = max(rate, best.get(setup, 0))
            yield _two(setup, form, n, rate)
            if n == 768:
                second = measured.second_run_costs(setup, form)
                seen = simulated(second, gpus, front_ends, Load(connections, images))
                yield _second(setup, form, seen.images_per_second)
        half = simulated(costs[True], 1, 12, Load(connections // 2, images))
        yield _two("apart", form, n, 2 * half.images_per_second)
    one, two = EARLIER[form]
    note = "ratio of two GPUs to one, of an earlier commit, by an outside measurement"
    name = f"{form}, {two} k / {one} k"
    yield case("earlier figures", name, "ratio", two / one, best["two"] / best["one"], note)


def _two(setup: str, form: str, n: int, rate: float) -> Case:
    real = measured.two_gpus(setup, form, n)["images_per_second"]
    note = ""
    if (setup, form, n) == ("two", "raw", 256):
        note = "disturbed: threads of two workers still made states of the JPEG library"
    if (setup, form, n) in {
        ("one", "blurred_by_gpu", 768),
        ("one", "raw", 768),
        ("apart", "raw", 768),
    }:
        note = "close to what the costs were taken from"
    return case(f"two_gpus, {setup}", f"{form}, {n}", "images/s", real, rate, note)


def _second(setup: str, form: str, rate: float) -> Case:
    real = measured.second_run(setup, form)["images_per_second"]
    note = "close to what the costs were taken from" if (setup, form) == ("one", "raw") else ""
    return case(f"two_gpus at 3b24e540, {setup}", f"{form}, 768", "images/s", real, rate, note)


class _Loop:
    """A closed loop on one worker on a CPU, without a front end: its time is in the worker's."""

    def __init__(self, connections: int) -> None:
        self.clock, self.latencies = Clock(), list[float]()
        limits = BatchLimits(8, 1 << 40)
        self.worker = CpuWorker(0, self.clock, measured.amx_worker(), limits, self._done)
        for _ in range(connections):
            self.worker.add(ticket(0.0))

    def _done(
        self, worker: CpuWorker, batch: list[Ticket], _dropped: list[Ticket], _seconds: float
    ) -> None:
        for job in batch:
            self.latencies.append(self.clock.now - job.tag)
            self.clock.at(self.clock.now, lambda _: worker.add(ticket(self.clock.now)))


def cpu() -> Iterator[Case]:
    """Yield the cases of `serve_cpu`: a worker on one core with two hyperthreads."""
    for n, found in measured.result("serve_cpu")["http"].items():
        loop = _Loop(int(n))
        loop.clock.run(20)
        note = "the time of a batch was taken from this" if n == "1" else ""
        rate = len(loop.latencies) / 20
        yield case("serve_cpu", f"{n} connections", "images/s", found["per_second"], rate, note)
        p50 = statistics.median(loop.latencies) * 1e3
        yield case("serve_cpu", f"{n} connections", "p50 ms", found["p50_ms"], p50, note)


PARTS: tuple[Callable[[], Iterator[Case]], ...] = (
    *(partial(served, run) for run in range(3)),
    *(partial(two_gpus, form) for form in FORMS),
    cpu,
)
"""All comparisons, in parts that may run side by side."""


def part(number: int) -> list[Case]:
    """Return the cases of a part."""
    return list(PARTS[number]())
