"""The sections of docs/scale.md about 1,000 workers, and about what breaks first."""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.scale import assumptions, sizing
from tools.scale.measured import result
from tools.scale.pages.plots import predictions
from tools.scale.pages.texts import paragraph

FRONT_ENDS = 64
"""Front ends of the scenarios with 1,000 workers."""


def load() -> Iterator[str]:
    """Yield the predictions without faults."""
    yield "## 1,000 workers: load and routing"
    yield ""
    yield "![Latency by load and routing](scale/latency.svg)"
    yield ""
    yield paragraph(
        "The workers are those of `overload.json`. Figures are medians of three seeds, with the "
        "lowest and the highest in brackets. `two by work` gives the real router two random "
        "workers, as Ray Serve's power of two choices does with numbers of requests; `full "
        "knowledge` is the worker with the least work of all."
    )
    yield ""
    yield from _table(predictions("load"))
    yield ""
    yield paragraph(
        "Knowledge that is old: every front end knows all totals as they were at most that long "
        "ago, and what it has given itself since."
    )
    yield ""
    yield from _table(predictions("old knowledge"))
    yield ""
    yield "Waiting for fuller batches, at 70 % and with `two by work` (0 ms is the row above):"
    yield ""
    yield from _table(predictions("batch wait"))
    yield ""
    yield "![p99.9 by the share of stragglers](scale/stragglers.svg)"
    yield ""
    yield f"A share of the workers is {assumptions.SLOWNESS.value:g} times slower, at 70 %:"
    yield ""
    yield from _table(predictions("stragglers"))


def faults() -> Iterator[str]:
    """Yield the predictions with faults and peaks."""
    yield "## 1,000 workers: faults and peaks"
    yield ""
    yield paragraph(
        f"At 70 % and with `two by work` unless the row says otherwise. A rack has "
        f"{assumptions.RACK.value:g} workers; noticed late means after "
        f"{assumptions.NOTICE.value:g} s, in which it is still given images. A worker every 5 s "
        "is twelve times as many as one a minute."
    )
    yield ""
    yield from _table(predictions("faults"), faults=True)
    yield ""
    yield paragraph(
        f"A peak of {assumptions.PEAK.value:g} times a load of 50 %, with deadlines of "
        f"{assumptions.DEADLINE.value:g} s. The autoscaler's replicas come after "
        f"{assumptions.UPSCALE.value:g} s and a start. The first two rows end 2.5 s after the peak "
        "began, before any queue is as long as the deadline; the others last a minute."
    )
    yield ""
    yield from _table(predictions("peak"), faults=True)


def _table(found: Mapping[str, Any], *, faults: bool = False) -> Iterator[str]:
    columns = {"good_per_second": "good/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms"}
    columns |= {"p999_ms": "p99.9 ms", "mean_batch": "batch"}
    if faults:
        columns |= {"refused_percent": "refused %", "expired_percent": "expired %"}
        columns |= {"sent_again": "sent again", "lost": "lost"}
        del columns["mean_batch"]
    yield f"| scenario | {' | '.join(columns.values())} |"
    yield "|---|" + "---|" * len(columns)
    for name, each in found.items():
        shown = (_range(each[column]) for column in columns)
        yield f"| {name.replace('%', ' %')} | {' | '.join(shown)} |"


def _range(values: list[float]) -> str:
    middle, low, high = values
    return f"{middle:,g}" if low == high else f"{middle:,g} ({low:,g}–{high:,g})"


def breaks() -> Iterator[str]:
    """Yield what breaks first."""
    yield "## What breaks first"
    yield ""
    for number, text in enumerate((_choosing(), _old(), _vanished(), *_counts()), 1):
        yield f"{number}. " + paragraph(text, indent="   ")


def _choosing() -> str:
    router = result("scale")["router_us"]
    front_end = sizing.front_end_seconds() * 1e6
    return (
        f"**Choosing among all workers.** The real router looks at each worker: {router['2']} µs "
        f"of CPU time for two, {router['100']} for 100 and {router['1000']} for 1,000, on the "
        f"machine that simulated. A front end has {front_end:.0f} µs for an image in all. Full "
        "knowledge is cheap for some tens of workers; a cluster needs two random choices or a heap."
    )


def _old() -> str:
    old, load = predictions("old knowledge"), predictions("load")
    full, two = load["70%, full knowledge"], load["70%, two by work"]
    tenth, second = (old[f"known {age} ms ago"]["p99_ms"][0] for age in (100, 1000))
    return (
        "**Old knowledge.** With totals that are up to 100 ms old, the p99 at 70% is "
        f"{tenth:g} ms, and with 1 s {second:g} ms, in place of {full['p99_ms'][0]:g} with present "
        "ones: all front ends choose the same workers. Two random choices by present totals have "
        f"{two['p99_ms'][0]:g} ms."
    )


def _vanished() -> str:
    late = predictions("faults")["rack lost, noticed late"]
    return (
        "**Hosts that vanish.** Until a lost rack is noticed it is given images, which end at "
        f"their deadline: {late['expired_percent'][0]:g}% of all that came in that run. What lost "
        "workers hold is sent again when the loss is noticed, so that helps only images whose "
        "deadline is longer than the notice."
    )


def _counts() -> Iterator[str]:
    yield (
        f"**Connections.** {FRONT_ENDS} front ends that each know 1,000 workers hold "
        f"{FRONT_ENDS * 1000:,} connections. They are opened again when workers come back."
    )
    yield (
        f"**The front ends' network.** {next(iter(sizing.needs())).need}. It is needed twice where "
        "front ends and workers are on different hosts, and once where they share one."
    )
