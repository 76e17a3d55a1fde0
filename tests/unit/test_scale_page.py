"""docs/scale.md computes with the committed rates."""

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scale.md").read_text()
MEAN = 1e9 / 86_400
PEAK, USE = 3 * MEAN, 0.7


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / f"tests/bench/results/{name}.json").read_text())
    return found


def on_a_gpu() -> float:
    rates: list[float] = [
        run["parts"]["darkroom"]["subsampled"]["raw"]["best"]["images_per_second"]
        for run in result("serve_gpu")["runs"]
        if "darkroom" in run["parts"]
    ]
    return min(rates)


def on_a_core() -> float:
    return float(result("serve_cpu")["http"]["32"]["per_second"])


def test_machines_and_costs_follow_from_the_measured_rate() -> None:
    for rate, price in [(on_a_gpu(), 4.0), (on_a_core(), 0.1)]:
        peak, mean = math.ceil(PEAK / (USE * rate)) + 1, math.ceil(MEAN / (USE * rate))
        row = next(line for line in PAGE.splitlines() if f"| {rate:,.0f} (`" in line)
        assert row.endswith(f" | {peak:,} | {mean:,} | {peak * price * 24 / 1000:.2f} |")


def test_the_network_carries_the_measured_photos_at_the_peak() -> None:
    photo = result("serve_gpu")["runs"][0]["images"]["subsampled_kB"]
    assert (
        f"{PEAK * photo * 8e3 / 1e9:.1f} Gbit/s at the peak | {PEAK:,.0f} × {photo} kB × 8" in PAGE
    )
    assert f"{MEAN:,.0f} images a second as a mean" in PAGE
