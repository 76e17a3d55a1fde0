"""Write docs/scale.md from `scale.json`, the measurements and the assumptions."""

import statistics
from collections.abc import Iterator

from tools.scale import assumptions, sizing
from tools.scale.measured import RESULTS
from tools.scale.pages.comparisons import rates, validation
from tools.scale.pages.forecasts import breaks, faults, load
from tools.scale.pages.texts import HEAD, INPUTS, LIMITS, MODEL, paragraph
from tools.scale.validation import GOAL

PAGE = RESULTS.parents[2] / "docs" / "scale.md"


def page() -> str:
    """Return the whole page as Markdown."""
    parts = (short, table_of_assumptions, sizes, needs)
    first = ["\n".join([*part(), ""]) for part in parts]
    later = ["\n".join([*part(), ""]) for part in (validation, load, faults, breaks)]
    table = ["| input | where it comes from |", "|---|---|"]
    inputs = ["\n".join([*table, *(f"| {what} | {where} |" for what, where in INPUTS.items()), ""])]
    return "\n".join([HEAD, *first, MODEL, *inputs, *later, LIMITS])


def short() -> Iterator[str]:
    """Yield the section with the answer."""
    gpu, *_, plain = sizing.sizes()
    found = rates()
    within = sum(abs(each["error"]) <= GOAL for each in found)
    yield "## In short"
    yield ""
    yield paragraph(
        f"A billion images a day are {sizing.mean_rate():,.0f} images a second as a mean, and "
        f"{sizing.peak_rate():,.0f} at a peak of {assumptions.PEAK.value:g} times that. At "
        f"{assumptions.USE.value:.0%} of their measured rate, {gpu.at_peak} hosts with one H200 "
        f"carry the peak, one of them as a spare; of the slowest CPU workers it takes "
        f"{plain.at_peak:,}. At the prices below, a million images cost {gpu.cost_always:.2f} USD "
        f"on the first and {plain.cost_always:.2f} USD on the second."
    )
    yield ""
    yield paragraph(
        f"Of {len(found)} measured rates that were not disturbed and not used to make the model, "
        f"the simulation meets {within} within {GOAL:.0%}; the median error is "
        f"{statistics.median(abs(each['error']) for each in found):.1%}. "
        "The others are listed with their errors."
    )


def table_of_assumptions() -> Iterator[str]:
    """Yield the figures that were not measured."""
    yield "## Assumptions"
    yield ""
    yield paragraph(
        "Change them in `tools/scale/assumptions.py`; `python -m tools.scale --page` computes "
        "sizes and costs again."
    )
    yield ""
    yield "| what | value | unit | why |"
    yield "|---|---|---|---|"
    for name, each in assumptions.ALL.items():
        yield f"| {name} | {each.value:,g} | {each.unit} | {each.why} |"


def sizes() -> Iterator[str]:
    """Yield the table of machines."""
    yield "## Machines and cost"
    yield ""
    yield (
        "| machine | images/s, measured | for the peak | for the mean | USD for a million, all day "
        "| USD for a million, scaled to the mean |"
    )
    yield "|---|---|---|---|---|---|"
    for each in sizing.sizes():
        machine = each.machine
        yield (
            f"| {machine.name} | {machine.per_second:,.1f} (`{machine.source}`) | {each.at_peak:,} "
            f"| {each.at_mean:,} | {each.cost_always:.3f} | {each.cost_scaled:.3f} |"
        )
    yield ""
    yield paragraph(
        "The rate is the lowest of the highest rates of all runs. A fleet for the peak has one "
        "spare machine. The first cost is that of the fleet for the peak all day, the second what "
        "an autoscaler could reach at best. The last row is a machine beside other programs: its "
        "rate says what a poor host gives, not what its processor can do."
    )


def needs() -> Iterator[str]:
    """Yield what the peak needs beside machines."""
    yield "## Network, storage and state"
    yield ""
    yield "| resource | need | that is |"
    yield "|---|---|---|"
    for each in sizing.needs():
        yield f"| {each.resource} | {each.need} | {each.units} |"
    yield ""
    yield paragraph(
        "No shared database stands in the path of an image. Limits, shares of clients, rates and "
        "the forecast are counted in memory that the front ends of one host share; a client's "
        "limits therefore hold for each host, and with several hosts it may have as many times "
        "more. The table of refused images after crashes is per host too: an image that ends "
        "workers may end two on each host. Jobs are rows of a database in one data folder; "
        "clusters divide jobs among folders."
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
