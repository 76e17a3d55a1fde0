"""Figures of the README and of pages are those of committed results, and pages list what exists."""

import json
import math
import re
from pathlib import Path
from typing import Any

from models.exit_codes import ExitCode
from workers.filters.registry import FILTERS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMAND_LINE = (ROOT / "docs/command-line.md").read_text()
TUNING = (ROOT / "docs/tuning.md").read_text()
SCALE = (ROOT / "docs/scale.md").read_text()
MEAN = 1e9 / 86_400
PEAK, USE = 3 * MEAN, 0.7


def result(name: str) -> dict[str, Any]:
    """Return a committed result of a benchmark."""
    found: dict[str, Any] = json.loads((ROOT / f"tests/bench/results/{name}.json").read_text())
    return found


def rates(images: str, bodies: str) -> list[float]:
    """Return the highest rate of each run on the GPU, for photos and bodies of a kind."""
    parts = [run["parts"] for run in result("serve_gpu")["runs"]]
    return sorted(
        part["darkroom"][images][bodies]["best"]["images_per_second"]
        for part in parts
        if "darkroom" in part
    )


def test_the_changelog_and_the_architecture_page_are_linked() -> None:
    assert "docs/architecture.md" in README
    assert "CHANGELOG.md" in README


def test_every_exit_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \| .* \| .* \|$", COMMAND_LINE, re.MULTILINE)
    codes = [int(code) for row in rows for code in row.split(",")]
    assert codes == [code.value for code in ExitCode]


def test_the_rates_on_a_gpu_are_those_of_the_committed_result() -> None:
    low, high = rates("subsampled", "raw")
    assert f"**{low:,.0f} to {high:,.0f} images a second**" in README
    for images, bodies in (("subsampled", "raw"), ("subsampled", "multipart"), ("mixed", "raw")):
        low, high = rates(images, bodies)
        assert f"{low:,.0f} to {high:,.0f} |" in TUNING, (images, bodies)


def test_the_rates_on_a_cpu_are_those_of_the_committed_result() -> None:
    found = result("serve_cpu")
    served = [found["http"][connections]["per_second"] for connections in ("1", "8", "32")]
    assert f"**{found['ratio_32']:.0%} of the rate of a plain loop**".replace("%", " %") in README
    assert f"{served[-1]:.0f} images a second over HTTP" in README
    assert f"{found['plain_loop_per_second']:.0f}, on one core" in " ".join(README.split())
    assert ", ".join(f"{each:.0f}" for each in served) in TUNING


def test_the_bytes_of_filters_on_a_gpu_are_those_of_the_committed_result() -> None:
    filters = result("filters_equal")["filters"]
    unequal = [each for each in filters if each["different"]]
    assert [(each["filter"], each["most_off"]) for each in unequal] == [("bilateral", 1)]
    assert f"**{len(filters)} filters give the same bytes" in README
    assert f"of {sum(each['samples'] for each in filters):,} samples" in README
    assert f"{unequal[0]['different']} differed" in README
    assert f"all {len(FILTERS)} filters" in README


def test_machines_and_costs_of_a_billion_images_follow_from_the_measured_rates() -> None:
    on_a_core = float(result("serve_cpu")["http"]["32"]["per_second"])
    for rate, price in [(min(rates("subsampled", "raw")), 4.0), (on_a_core, 0.1)]:
        peak, mean = math.ceil(PEAK / (USE * rate)) + 1, math.ceil(MEAN / (USE * rate))
        row = next(line for line in SCALE.splitlines() if f"| {rate:,.0f} (`" in line)
        assert row.endswith(f" | {peak:,} | {mean:,} | {peak * price * 24 / 1000:.2f} |")


def test_the_network_carries_the_measured_photos_at_the_peak() -> None:
    photo = result("serve_gpu")["runs"][0]["images"]["subsampled_kB"]
    peak = f"{PEAK * photo * 8e3 / 1e9:.1f} Gbit/s at the peak | {PEAK:,.0f} × {photo} kB × 8"
    assert peak in SCALE
    assert f"{MEAN:,.0f} images a second as a mean" in SCALE
