"""The section of docs/scale.md that compares the simulation with measurements."""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.scale.measured import host_slowness, result
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
        "busy, and front ends wait longer for their other threads; the model takes both for all "
        "work there."
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
    form, _, load = each["case"].partition(", ")
    if each["what"] == "p99 ms":
        return "rare stalls of processes are not in the model"
    if each["group"] == "serve_gpu, run 3":
        return _slow_run(form, load.partition(" ")[0])
    if each["case"] == "raw, 256":
        return "the first point after the start, while decoder states were still made"
    if load == "256" and each["group"] in ("two_gpus, two", "two_gpus, apart"):
        return _one_or_two_servers(form)
    return "not known"


def _slow_run(form: str, connections: str) -> str:
    """Return how the third run of `serve_gpu` differs from the others at the same load."""
    runs = [run["parts"]["darkroom"]["subsampled"] for run in result("serve_gpu")["runs"][:3]]
    rates = [run[form]["images_per_second"][connections] for run in runs]
    less = 1 - rates[2] / (sum(rates[:2]) / 2)
    return f"this run answered {less:.0%} less than the mean of the others at this load".replace(
        "%", " %"
    )


def _one_or_two_servers(form: str) -> str:
    """Return how far one server with two GPUs is from two servers, measured and simulated."""
    found = {
        each["group"]: each
        for each in result("scale")["validation"]
        if each["case"] == f"{form}, 256" and each["group"].startswith("two_gpus, ")
    }
    one, two = found["two_gpus, two"], found["two_gpus, apart"]
    real, simulated = (one[name] / two[name] - 1 for name in ("measured", "simulated"))
    text = (
        f"one server is {real:+.0%} from two servers at this load, and {simulated:+.0%} simulated"
    )
    return text.replace("%", " %")
