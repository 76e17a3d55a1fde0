"""Draw the charts of docs/benchmarks.md from the committed results: `make docs`.

A test compares the files with what this program draws, so no chart is older than its results.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.charts import BLUE, GREY, OURS, PALE, Bar, Line, Panel, bars, panels

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "bench" / "results"
FOLDER = ROOT / "docs" / "benchmarks"

LITSERVE = "litserve"
PEERS = {
    LITSERVE: "LitServe, tuned",
    "naive_8": "FastAPI and PyTorch, 8 processes",
    "naive_1": "FastAPI and PyTorch, 1 process",
}
"""The peers of `serve_gpu` by the name of their part."""


def results(name: str) -> Any:
    """Return the committed result of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def runs() -> list[Mapping[str, Any]]:
    """Return the parts of those runs of `serve_gpu` that measured Darkroom over HTTP."""
    return [run["parts"] for run in results("serve_gpu")["runs"] if "darkroom" in run["parts"]]


def measured(parts: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return one part of a run, of several LitServe the fastest; None: it was not measured."""
    if name == "darkroom":
        found: Mapping[str, Any] = parts["darkroom"]["subsampled"]["raw"]
        return found
    part = parts.get(name, {})
    candidates = list(part.values()) if name == LITSERVE else [part]
    whole = [each for each in candidates if isinstance(each, dict) and "best" in each]
    return max(whole, key=lambda each: each["best"]["images_per_second"], default=None)


def best(name: str) -> list[float]:
    """Return the highest images a second of each run in which a part was measured."""
    found = [measured(parts, name) for parts in runs()]
    return [each["best"]["images_per_second"] for each in found if each]


def rates() -> str:
    """Return images a second over HTTP, of Darkroom and of its peers."""
    items = []
    for name, label in {"darkroom": "Darkroom", **PEERS}.items():
        if found := best(name):
            low, high = min(found), max(found)
            text = f"{low:,.0f}" if len(found) == 1 else f"{low:,.0f} to {high:,.0f}"
            items.append(Bar(label, low, high, text, OURS if name == "darkroom" else GREY))
    return bars("One photo a request, on one GPU", "images a second", items)


def connections() -> str:
    """Return images a second against the number of connections."""
    lines = []
    colours = (OURS, BLUE, GREY, PALE)
    names = {"darkroom": "Darkroom", LITSERVE: "LitServe", "naive_8": "8 processes"}
    names["naive_1"] = "1 process"
    for (name, label), colour in zip(names.items(), colours, strict=True):
        found = measured(runs()[0], name)
        if found:
            points = [(float(n), rate) for n, rate in found["images_per_second"].items()]
            lines.append(Line(label, points, colour))
    return panels(Panel("Rate by connections", "connections", "images a second", lines, log_x=True))


def latency() -> str:
    """Return latency against load, on a GPU and on a CPU."""
    ours, theirs = runs()[0]["darkroom"]["subsampled"], measured(runs()[0], LITSERVE)
    raw, half = ours["raw"], ours["half_rate"]
    alone = (raw["images_per_second"]["1"], raw["p50_ms_at_1"])
    gpu = [
        Line("median", [alone, _point(half, "p50_ms"), _point(raw["best"], "p50_ms")]),
        Line("p99", [_point(half, "p99_ms"), _point(raw["best"], "p99_ms")], dashed=True),
    ]
    if theirs:
        lone = (theirs["images_per_second"]["1"], theirs["p50_ms_at_1"])
        both = [lone, _point(theirs["best"], "p50_ms")]
        gpu.append(Line("LitServe, median", both, BLUE))
    http = results("serve_cpu")["http"].values()
    cpu = [
        Line("median", [_point(each, "p50_ms") for each in http]),
        Line("p99", [_point(each, "p99_ms") for each in http], dashed=True),
    ]
    load, time = "images a second", "milliseconds"
    return panels(
        Panel("On one GPU", load, time, gpu, log_x=True, log_y=True),
        Panel("On two threads of one CPU core", load, time, cpu),
    )


def _point(found: Mapping[str, float], quantity: str) -> tuple[float, float]:
    rates = ("images_per_second", "answered_per_second", "per_second")
    return next(found[name] for name in rates if name in found), found[quantity]


def filters_gpu() -> str:
    """Return the rate of each filter's kernels as a share of that of a copy."""
    items = [
        Bar(_call(each), share, share, f"{share:.2f}", OURS)
        for each in gpu_filters()
        for share in (each["share_of_copy"],)
    ]
    title = "Filters on a GPU beside a copy of the same images"
    unit = "share of the rate of the copy"
    return bars(title, unit, items, left=290, step=17, most=1)


def gpu_filters() -> Sequence[Mapping[str, Any]]:
    """Return the filters of `filters_gpu`, the fastest first.

    Those with kernels that are newer than the whole run were measured apart, and count instead.
    """
    found = results("filters_gpu")
    apart = {each["filter"] for each in found["measured_apart"]}
    current = [e for e in found["filters"] if e["filter"] not in apart or _small_median(e)]
    return sorted(
        [*current, *found["measured_apart"]], key=lambda e: (-e["share_of_copy"], _call(e))
    )


def _small_median(each: Mapping[str, Any]) -> bool:
    """Return whether this is a median below 9 × 9, whose kernels are those of the whole run."""
    smallest = min(
        e["parameters"]["size"]
        for e in results("filters_gpu")["measured_apart"]
        if e["filter"] == "median"
    )
    return each["filter"] == "median" and int(each["parameters"].get("size", 3)) < int(smallest)


def filters_cpu() -> str:
    """Return the time of each filter on a CPU as a multiple of that of another library."""
    found = sorted(results("filters_cpu")["filters"], key=lambda e: (e["ratio"], _call(e)))
    items = [Bar(_call(e), e["ratio"], e["ratio"], f"{e['ratio']:.2f}", OURS) for e in found]
    title = "Filters on a CPU beside the fastest call of OpenCV, Pillow or NumPy"
    return bars(title, "time of the filter / time of the call", items, left=290, step=17)


def _call(each: Mapping[str, Any]) -> str:
    """Return the name of a filter with its parameters in short."""
    values = (f"{k} {v}" for k, v in each["parameters"].items() if isinstance(v, (int, float, str)))
    return " ".join([each["filter"], *values])


def soak() -> str:
    """Return memory and counts during the soak: medians of each fifth of its time."""
    found = results("soak")
    minutes = found["minutes"] / 5

    def line(quantity: str, name: str, colour: str) -> Line:
        medians = found["medians_of_fifths"][quantity]
        points = [(minutes * (n + 0.5), value) for n, value in enumerate(medians)]
        return Line(name, points, colour)

    memory = [line("memory_mb", "memory", OURS), line("shared_mb", "shared memory", BLUE)]
    names = {"descriptors": OURS, "threads": BLUE, "processes": GREY}
    counts = [line(name, name, colour) for name, colour in names.items()]
    return panels(
        Panel("Memory of all processes, medians", "minutes", "MB", memory),
        Panel("Descriptors, threads and processes, medians", "minutes", "number", counts),
        height=150,
    )


def overload() -> str:
    """Return goodput and refusals against the load, in multiples of the capacity."""
    found = results("overload")
    phases = found["phases"]
    goodput = [(each["load"], each["goodput_per_second"]) for each in phases]
    capacity = [(each["load"], found["capacity_per_second"]) for each in phases]
    refused = [e for e in phases if e["refused"]]
    refusals = [
        Line(name, [(each["load"], each[f"refusal_{name}_ms"]) for each in refused], colour)
        for name, colour in (("p50", BLUE), ("p99", OURS))
    ]
    load = "load, in multiples of the capacity"
    lines = [Line("good answers", goodput), Line("capacity", capacity, PALE, dashed=True)]
    return panels(
        Panel("Good answers under overload", load, "images a second", lines),
        Panel("Time until a refusal", load, "milliseconds", refusals),
        height=170,
    )


PLOTS = {
    "rates": rates,
    "connections": connections,
    "latency": latency,
    "filters_gpu": filters_gpu,
    "filters_cpu": filters_cpu,
    "soak": soak,
    "overload": overload,
}
"""The charts by the names of their files."""


def main() -> None:
    """Write all charts."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PLOTS.items():
        (FOLDER / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
