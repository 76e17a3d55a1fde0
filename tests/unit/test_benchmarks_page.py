"""docs/benchmarks.md and its charts show the committed results; `make docs` makes them."""

import re
from xml.etree import ElementTree

import pytest

from tools import benchmark_plots, benchmarks_page
from tools.charts import Bar, Line, Panel, bars, panels

SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_is_what_the_results_say() -> None:
    assert benchmarks_page.PAGE.read_text() == benchmarks_page.page(), "run `make docs`"


@pytest.mark.parametrize("name", benchmark_plots.PLOTS)
def test_a_chart_is_what_the_results_say(name: str) -> None:
    drawn = benchmark_plots.PLOTS[name]()
    assert (benchmark_plots.FOLDER / f"{name}.svg").read_text() == drawn, "run `make docs`"


def test_every_chart_is_shown_and_none_is_left_over() -> None:
    shown = set(re.findall(r"\(benchmarks/(\w+)\.svg\)", benchmarks_page.page()))
    assert shown == set(benchmark_plots.PLOTS)
    assert {path.stem for path in benchmark_plots.FOLDER.iterdir()} == shown


def test_the_rate_of_a_filter_with_newer_kernels_is_that_of_its_own_run() -> None:
    shown = benchmark_plots.gpu_filters()
    apart = benchmark_plots.results("filters_gpu")["measured_apart"]
    assert all(each in shown for each in apart)
    calls = [(each["filter"], str(each["parameters"])) for each in shown]
    assert len(set(calls)) == len(calls)
    assert not [each for each in shown if each["filter"] == "rank" and each not in apart]


def test_a_bar_is_as_long_as_its_value_and_pale_up_to_the_highest() -> None:
    drawn = ElementTree.fromstring(bars("t", "u", [Bar("a", 50, 100, "x"), Bar("b", 25, 25, "y")]))
    rects = [rect for rect in drawn.iter(f"{SVG}rect") if rect.get("y")]
    pale, full, *second = (float(rect.get("width", "")) for rect in rects)
    assert full == pytest.approx(pale / 2, abs=0.1)
    assert second == pytest.approx([pale / 4, pale / 4], abs=0.1)


def test_a_bar_beyond_the_axis_ends_there() -> None:
    drawn = ElementTree.fromstring(
        bars("t", "u", [Bar("a", 7, 7, "7"), Bar("b", 1, 1, "1")], most=1)
    )
    widths = [float(r.get("width", "")) for r in drawn.iter(f"{SVG}rect") if r.get("y")]
    assert len(set(widths)) == 1


@pytest.mark.parametrize("log", [False, True])
def test_points_have_their_places_between_the_axes(log: bool) -> None:
    line = Line("l", [(10, 10), (100, 100), (1000, 1000)])
    panel = Panel("t", "x", "y", [line], log_x=log, log_y=log)
    drawn = ElementTree.fromstring(panels(panel))
    circles = list(drawn.iter(f"{SVG}circle"))
    xs, ys = ([float(c.get(axis, "")) for c in circles] for axis in ("cx", "cy"))
    assert xs == sorted(xs)
    assert ys == sorted(ys, reverse=True)
    share = 1 / 2 if log else 90 / 990
    assert (xs[1] - xs[0]) / (xs[2] - xs[0]) == pytest.approx(share, abs=0.01)


def test_texts_of_a_chart_are_escaped() -> None:
    drawn = bars("a < b", "&", [Bar("<x>", 1, 1, "1")])
    assert "a &lt; b" in drawn
    ElementTree.fromstring(drawn)
