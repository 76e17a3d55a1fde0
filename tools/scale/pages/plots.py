"""Draw the charts of docs/scale.md from `scale.json`."""

from typing import Any

from tools.charts import BLUE, GREY, OURS, Bar, Line, Panel, bars, panels
from tools.scale.measured import RESULTS, result

FOLDER = RESULTS.parents[2] / "docs" / "scale"

COLOURS = {"two by work": OURS, "full knowledge": BLUE, "random": GREY}


def predictions(group: str) -> dict[str, Any]:
    """Return the predictions of a group by the names of their scenarios."""
    found = result("scale")["predictions"]
    return {each["scenario"]: each for each in found if each["group"] == group}


def latency() -> str:
    """Return the latencies of the routing policies against the load."""
    found = predictions("load")
    charts = []
    for title, quantity in (("Median", "p50_ms"), ("p99.9", "p999_ms")):
        lines = []
        for routing, colour in COLOURS.items():
            loads = [name.partition("%")[0] for name in found if name.endswith(routing)]
            points = [(float(load), found[f"{load}%, {routing}"][quantity][0]) for load in loads]
            lines.append(Line(routing, points, colour))
        name = f"{title} of the latency, 1,000 workers"
        charts.append(Panel(name, "load in percent", "milliseconds", lines, log_y=True))
    return panels(*charts, height=170)


def validation() -> str:
    """Return the error of every comparison with a measured rate that was not disturbed."""
    items = []
    for case in result("scale")["validation"]:
        if case["what"] == "images/s" and "disturbed" not in case["note"]:
            size = abs(case["error"])
            colour = OURS if size > 0.1 else BLUE
            name = f"{case['group']}: {case['case']}"
            items.append(Bar(name, size, size, f"{case['error']:+.1%}", colour))
    return bars("Error of simulated rates", "share of the rate", items, left=330, step=17)


def stragglers() -> str:
    """Return the p99.9 with stragglers by policy."""
    base = {
        name.partition(", ")[2]: each for name, each in predictions("load").items() if "70%" in name
    }
    found = predictions("stragglers")
    lines = []
    for routing, colour in COLOURS.items():
        if not any(name.endswith(routing) for name in found):
            continue
        points = [(0.0, base[routing]["p999_ms"][0])]
        points += [
            (float(name.partition("%")[0]), each["p999_ms"][0])
            for name, each in found.items()
            if name.endswith(routing)
        ]
        lines.append(Line(routing, points, colour))
    title = "p99.9 by the share of stragglers, load of 70 %"
    return panels(Panel(title, "stragglers in percent", "milliseconds", lines, log_y=True))


PLOTS = {"latency": latency, "validation": validation, "stragglers": stragglers}
"""The charts by the names of their files."""


def main() -> None:
    """Write all charts."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PLOTS.items():
        (FOLDER / f"{name}.svg").write_text(draw())
