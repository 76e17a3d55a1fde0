"""docs/benchmarks.md and its charts show the committed results; `make docs` makes them."""

import re

from tools import benchmark_plots, benchmarks_page


def test_the_page_is_what_the_results_say() -> None:
    assert benchmarks_page.PAGE.read_text() == benchmarks_page.page(), "run `make docs`"


def test_a_chart_is_what_the_results_say() -> None:
    for name in benchmark_plots.PLOTS:
        drawn = benchmark_plots.PLOTS[name]()
        assert (benchmark_plots.FOLDER / f"{name}.svg").read_text() == drawn, "run `make docs`"


def test_every_chart_is_shown_and_none_is_left_over() -> None:
    shown = set(re.findall(r"\(benchmarks/(\w+)\.svg\)", benchmarks_page.page()))
    assert shown == set(benchmark_plots.PLOTS)
    assert {path.stem for path in benchmark_plots.FOLDER.iterdir()} == shown
