"""Predict a cluster of 1,000 workers: every scenario by several seeds, with ranges."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from models.domain.job import Job
from tools.scale import assumptions, measured
from tools.scale.simulation.fleet import Fleet
from tools.scale.simulation.jobs import IMAGE, OPERATION
from tools.scale.simulation.routing import Choice
from tools.scale.simulation.scenario import Outcome, Scenario
from workers.backends.routing import OwnWork, Router

SEEDS = (1, 2, 3)
WORKERS = 1000
LOADS = (0.5, 0.7, 0.9)


@dataclass(frozen=True, slots=True)
class Named:
    """A scenario with the group and the name that the page shows."""

    group: str
    name: str
    scenario: Scenario


def _base() -> Scenario:
    return Scenario(
        WORKERS,
        measured.plain_worker(),
        load=0.7,
        seconds=2.5,
        warm=1.0,
        network=assumptions.NETWORK.value / 1e3,
        deadline=assumptions.DEADLINE.value,
        slowness=assumptions.SLOWNESS.value,
        restart=measured.restart_seconds(),
        upscale_after=assumptions.UPSCALE.value,
    )


def scenarios() -> Iterator[Named]:
    """Yield all scenarios."""
    base = _base()
    for routing in ("two by work", "full knowledge", "random"):
        for load in LOADS:
            yield Named("load", f"{load:.0%}, {routing}", replace(base, load=load, routing=routing))
    for age in (100, 1000):
        name = f"known {age} ms ago"
        yield Named("old knowledge", name, replace(base, routing=f"known {age} ms"))
    for share in (0.01, 0.05):
        for routing in ("two by work", "full knowledge"):
            scenario = replace(base, stragglers=share, routing=routing)
            yield Named("stragglers", f"{share:.0%}, {routing}", scenario)
    for wait in (0.005, 0.02):
        yield Named("batch wait", f"{wait * 1e3:.0f} ms", replace(base, batch_wait=wait))
    yield from _faults(base)
    yield from _peaks(base)


def _faults(base: Scenario) -> Iterator[Named]:
    yield Named("faults", "a worker lost every 5 s", replace(base, seconds=5.0, lost_every=5.0))
    rack = replace(base, rack=int(assumptions.RACK.value), rack_at=1.5, seconds=12.0)
    late = replace(rack, noticed_after=assumptions.NOTICE.value)
    yield Named("faults", "rack lost, noticed at once", replace(rack, seconds=3.5))
    yield Named("faults", "rack lost, noticed late", late)


def _peaks(base: Scenario) -> Iterator[Named]:
    peak = replace(base, load=0.5, peak=assumptions.PEAK.value, peak_from=1.5, seconds=4.0)
    yield Named("peak", "without admission", peak)
    yield Named("peak", "with admission", replace(peak, admission=True))
    small = replace(peak, workers=20, front_ends=2, seconds=60.0, admission=True)
    yield Named("peak", "20 workers, with admission, 60 s", small)
    yield Named("peak", "20 workers, 20 more by the autoscaler", replace(small, spare=20))


def predicted(pool: Executor) -> Callable[[], list[dict[str, Any]]]:
    """Start all scenarios; return a function that waits for their figures and returns them.

    Each figure is a median with the lowest and the highest.
    """
    named = list(scenarios())
    tasks = {
        (n, seed): pool.submit(_run, each.scenario, seed)
        for n, each in sorted(enumerate(named), key=lambda item: -item[1].scenario.images)
        for seed in SEEDS
    }

    def wait() -> list[dict[str, Any]]:
        return [
            {
                "group": each.group,
                "scenario": each.name,
                **_ranges([tasks[n, seed].result() for seed in SEEDS]),
            }
            for n, each in enumerate(named)
        ]

    return wait


def _run(scenario: Scenario, seed: int) -> dict[str, float]:
    gc.disable()  # there are no cycles, and looking for them takes a third of the time
    return figures(scenario, Fleet(scenario, seed).run())


def figures(scenario: Scenario, seen: Outcome) -> dict[str, float]:
    """Return the figures of a run."""
    span = scenario.seconds - scenario.warm
    return {
        "asked_per_second": round(seen.came / span),
        "good_per_second": round(seen.good / span),
        "p50_ms": round(seen.quantile(0.5), 1),
        "p99_ms": round(seen.quantile(0.99), 1),
        "p999_ms": round(seen.quantile(0.999), 1),
        "refused_percent": round(100 * seen.refused / seen.came, 3),
        "expired_percent": round(100 * seen.expired / seen.came, 3),
        "failed_percent": round(100 * seen.failed / seen.came, 3),
        "sent_again": seen.sent_again,
        "lost": seen.left,
        "mean_batch": round(seen.mean_batch, 2),
    }


def _ranges(runs: list[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the median, the lowest and the highest of each figure."""
    ranges = {}
    for name in runs[0]:
        values = sorted(run[name] for run in runs)
        ranges[name] = [values[len(values) // 2], values[0], values[-1]]
    return ranges


def router_seconds() -> dict[str, float]:
    """Return microseconds of CPU time that the real router takes for a choice, by candidates.

    For each number of candidates this is the least of five rounds.
    """
    found = {}
    for workers in (2, 10, 100, 1000):
        router = Router(OwnWork(workers))
        devices = [(worker, "cpu") for worker in range(workers)]
        rounds = 20_000 // workers
        choices = [Choice(Job(OPERATION, IMAGE)) for _ in range(rounds)]
        taken = []
        for _ in range(5):
            start = time.process_time()
            for choice in choices:
                router.choose(choice, devices)  # type: ignore[arg-type]  # it has what is read
            taken.append(time.process_time() - start)
        found[str(workers)] = round(min(taken) / rounds * 1e6, 2)
    return found
