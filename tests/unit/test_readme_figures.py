"""The figures of the README and of docs/tuning.md are those of the committed results."""

from typing import Any

from tests.documentation import ROOT
from tools.benchmark_plots import LITSERVE, best, measured, results, runs

README = " ".join((ROOT / "README.md").read_text().split())
TUNING = (ROOT / "docs/tuning.md").read_text()


def ratios() -> list[str]:
    """Return Darkroom's rate by LitServe's, of the runs that measured both."""
    both = [(measured(parts, "darkroom"), measured(parts, LITSERVE)) for parts in runs()]
    return [f"{rate(ours) / rate(theirs):.2f}" for ours, theirs in both if ours and theirs]


def rate(found: Any) -> float:
    return float(found["best"]["images_per_second"])


def test_the_rate_on_a_gpu_is_that_of_the_runs() -> None:
    found = best("darkroom")
    shown = f"{min(found):,.0f} to {max(found):,.0f}"
    assert f"**{shown} images a second**" in README
    assert shown in TUNING


def test_the_ratios_to_litserve_are_those_of_the_runs() -> None:
    assert f"this was {' and '.join(ratios())} times as much" in README
    assert " and ".join(f"1/{each}" for each in ratios()) in README


def test_the_rate_on_a_cpu_is_that_of_the_run() -> None:
    found = results("serve_cpu")
    rates = [f"{each['per_second']:.0f}" for each in found["http"].values()]
    assert f"**{found['ratio_32']:.0%}".replace("%", " %") in README
    assert f"{rates[-1]} images a second over HTTP with 32 connections" in README
    assert f"does {found['plain_loop_per_second']:.0f}" in README
    assert f"| {', '.join(rates)} |" in TUNING


def test_the_samples_that_differ_on_gpus_are_those_of_the_run() -> None:
    filters = results("filters_equal")["filters"]
    different = {each["filter"]: each["different"] for each in filters if each["different"]}
    samples = sum(each["samples"] for each in filters)
    assert f"**{len(filters)} filters give the same bytes" in README
    assert f"of {samples:,} samples {sum(different.values())} differed" in README
    assert list(different) == ["bilateral"]
    assert max(each["most_off"] for each in filters) == 1
