"""From what was measured during an attack to the promises it broke."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.harness.attack import Attack, Finding, Outcome
from tests.chaos.harness.neighbours import Neighbours
from tests.chaos.harness.observer import Observer

LIVEZ_WITHIN = 1.0
LARGEST_ERROR = 100_000
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack as it was: `finished` is false where the attacker had to be stopped."""

    attack: Attack
    front_ends: int
    seconds: float
    finished: bool
    survived: bool
    steps: Sequence[Outcome | Finding]
    observer: Observer
    neighbours: Neighbours


def verdict(trial: Trial) -> dict[str, object]:
    """Return the figures of one attack, and under `broken` the promises that were not kept."""
    observer, neighbours = trial.observer, trial.neighbours
    outcomes = [step for step in trial.steps if isinstance(step, Outcome)]
    findings = [step for step in trial.steps if isinstance(step, Finding)]
    errors = [o.body_bytes for o in outcomes if o.status is not None and o.status >= 400]
    return {
        "attack": trial.attack.name,
        "about": trial.attack.about,
        "front_ends": trial.front_ends,
        "seconds": round(trial.seconds, 1),
        "livez_worst_s": round(observer.livez_worst, 3),
        "livez_failed": observer.livez_failed,
        "neighbours": neighbours.count,
        "neighbours_spared": neighbours.spared,
        "neighbours_requests": neighbours.requests,
        "neighbours_in_time": neighbours.in_time,
        "neighbours_refusals": neighbours.refused,
        "neighbours_slowest_s": round(neighbours.slowest, 2),
        "neighbours_errors": dict(sorted(neighbours.ends.items())),
        "attacker": dict(sorted(Counter(str(o.status or o.end) for o in outcomes).items())),
        "attacker_slowest_s": round(max((o.seconds for o in outcomes), default=0.0), 2),
        "attacker_finished": trial.finished,
        "largest_error_bytes": max([*errors, neighbours.largest_error], default=0),
        "memory_idle_mb": round(observer.idle_bytes / _MB),
        "memory_over_idle_mb": round((observer.peak_bytes - observer.idle_bytes) / _MB),
        "cpu_s": round(observer.cpu, 1),
        "findings": {f.name: round(f.value, 3) for f in findings},
        "survived": trial.survived,
        "excerpt": next((o.excerpt for o in outcomes if o.excerpt), "")[:200],
        "broken": [
            *_of_the_server(trial),
            *_of_the_attacker(trial.attack, outcomes, trial.finished),
            *(f"{f.name} is {f.value:.3g}{_bounds(f)}" for f in findings if f.broken),
        ],
    }


def _of_the_server(trial: Trial) -> list[str]:
    observer, neighbours = trial.observer, trial.neighbours
    grown = (observer.peak_bytes - observer.idle_bytes) / _MB
    missed = neighbours.count - neighbours.spared
    claims = (
        (trial.survived, "the server ended"),
        (observer.livez_worst <= LIVEZ_WITHIN, f"/livez took {observer.livez_worst:.2f} s"),
        (not observer.livez_failed, f"/livez failed {observer.livez_failed} times"),
        (
            not missed or not trial.attack.neighbours_spared,
            f"{missed} of {neighbours.count} neighbours were not answered in time",
        ),
        (grown <= trial.attack.memory_mb, f"memory grew by {grown:.0f} MB"),
        (
            neighbours.largest_error <= LARGEST_ERROR,
            f"a neighbour's error has {neighbours.largest_error} bytes",
        ),
    )
    return [text for kept, text in claims if not kept]


def _of_the_attacker(attack: Attack, outcomes: Sequence[Outcome], finished: bool) -> list[str]:
    late = sum(o.end == "never" or o.seconds > attack.ends_within for o in outcomes)
    resets = sum(o.end == "reset" for o in outcomes)
    largest = max((o.body_bytes for o in outcomes if (o.status or 0) >= 400), default=0)
    wrong = Counter(
        o.status for o in outcomes if o.status is not None and not _fits(attack, o.status)
    )
    claims = (
        (finished, "the attack had to be stopped"),
        (not late, f"{late} requests of the attacker lasted over {attack.ends_within:g} s"),
        (attack.resets_allowed or not resets, f"{resets} answers could not be read (reset)"),
        (largest <= LARGEST_ERROR, f"an error answer has {largest} bytes"),
        (not wrong, f"the attacker was answered {dict(wrong)}"),
    )
    return [text for kept, text in claims if not kept]


def _fits(attack: Attack, status: int) -> bool:
    if attack.accepted:
        return status in (*attack.accepted, 429, 503)
    return status < 500 or status in (503, 504)


def _bounds(finding: Finding) -> str:
    most = "" if finding.most is None else f", at most {finding.most:g} is promised"
    least = "" if finding.least is None else f", at least {finding.least:g} is promised"
    return most + least
