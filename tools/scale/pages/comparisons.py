"""The section of docs/scale.md that compares the simulation with measurements."""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.scale.measured import front_end_seconds, host_slowness, result, two_gpus
from tools.scale.pages.texts import paragraph
from tools.scale.validation import GOAL


def rates() -> list[Mapping[str, Any]]:
    """Return the comparisons of rates that count: not disturbed, and not what costs come from."""
    return [
        each
        for each in result("scale")["validation"]
        if each["what"] == "images/s" and not each["note"]
    ]


def validation() -> Iterator[str]:
    """Yield the comparisons with measurements."""
    found = result("scale")["validation"]
    beyond = [each for each in found if abs(each["error"]) > GOAL]
    yield "## Simulated and measured"
    yield ""
    yield "![Error of every simulated rate](scale/validation.svg)"
    yield ""
    yield paragraph(
        "Each case is the median of three seeds. Cores of the machine with two GPUs take "
        f"{host_slowness():.2f} times the CPU time for an image when both halves of the host are "
        "busy; the model takes that for all work there."
    )
    yield ""
    yield f"These {len(beyond)} of {len(found)} comparisons are more than {GOAL:.0%} off:".replace(
        "%", " %"
    )
    yield ""
    yield "| measurement | case | what | measured | simulated | error | why |"
    yield "|---|---|---|---|---|---|---|"
    for each in beyond:
        yield _compared(each, each["note"] or _why(each))
    yield ""
    yield "All others:"
    yield ""
    yield "| measurement | case | what | measured | simulated | error | note |"
    yield "|---|---|---|---|---|---|---|"
    for each in found:
        if each not in beyond:
            yield _compared(each, each["note"])


def _compared(each: Mapping[str, Any], note: str) -> str:
    what = f"| {each['group']} | {each['case']} | {each['what']} "
    return f"{what}| {each['measured']:,} | {each['simulated']:,} | {each['error']:+.1%} | {note} |"


def _why(each: Mapping[str, Any]) -> str:
    """Return what is known about an error."""
    if "3b24e540" in each["group"]:
        return _second_machine(each)
    if each["what"] == "p99 ms":
        return "rare stalls of processes are not in the model"
    if each["group"] == "serve_gpu, run 3":
        return "this run was slower at most loads than its CPU times and single latency say"
    if each["case"] == "raw, 256":
        return "the first point after the start, while decoder states were still made"
    return "not known"


def _second_machine(each: Mapping[str, Any]) -> str:
    """Return how the CPU time of an image there differs from that which the model has."""
    setup, form = each["group"].rpartition(" ")[2], each["case"].partition(",")[0]
    point = result("two_gpus_first")["second_run"]["setups"][setup][form]["768"]
    there = point["front_end_cores"] / point["images_per_second"]
    here = front_end_seconds(two_gpus(setup, form, 768))
    return (
        f"front ends took {there * 1e6:.0f} µs of CPU time for an image there, {here * 1e6:.0f} "
        "in the first run"
    )
