"""docs/scale.md and its charts show the committed result; `python -m tools.scale --page`."""

import re

import pytest

from tools.scale.measured import result
from tools.scale.pages import page, plots

AGAIN = "run `python -m tools.scale --page`"


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text() == page.page(), AGAIN


@pytest.mark.parametrize("name", plots.PLOTS)
def test_a_chart_is_what_the_results_say(name: str) -> None:
    assert (plots.FOLDER / f"{name}.svg").read_text() == plots.PLOTS[name](), AGAIN


def test_every_chart_is_shown_and_none_is_left_over() -> None:
    shown = set(re.findall(r"\(scale/(\w+)\.svg\)", page.page()))
    assert shown == set(plots.PLOTS)
    assert {path.stem for path in plots.FOLDER.iterdir()} == shown


def test_every_comparison_is_shown_with_its_error() -> None:
    text = page.page()
    for each in result("scale")["validation"]:
        assert f"| {each['group']} | {each['case']} | {each['what']} |" in text
        assert f"| {each['error']:+.1%} |" in text


def test_most_comparisons_are_close_and_no_image_is_lost() -> None:
    found = result("scale")
    rates = [e for e in found["validation"] if e["what"] == "images/s" and not e["note"]]
    assert sum(abs(each["error"]) <= 0.1 for each in rates) >= 0.6 * len(rates)
    assert all(each["lost"] == [0, 0, 0] for each in found["predictions"])
