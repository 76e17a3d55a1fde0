"""`docs/reliability.md` shows the measured figures, and names programs and tests that exist."""

import re
from typing import Any

import pytest

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.report import BEGIN, END, PAGE, RESULTS, ROOT, load, page, table

RESULT: dict[str, Any] = {
    "attack": "header_lines",
    "front_ends": 0,
    "livez_worst_s": 0.25,
    "neighbours_spared": 15,
    "largest_error_bytes": 250_000_000,
    "memory_over_idle_mb": 12,
    "cpu_s": 3.2,
    "attacker": {"431": 4},
    "attacker_slowest_s": 0.1,
    "findings": {"bytes_taken": 65536.0},
    "broken": ["an error answer has 250000000 bytes"],
}
MEASURED = {"commit": "abc", "cores": 2, "machine": "x", "when": "2026-01-01", "note": "busy"}


def test_the_page_has_the_figures_of_the_measured_files() -> None:
    names = ("attacks_before.json", "attacks_after.json")
    content = table(*(load(RESULTS / name) for name in names))
    text = PAGE.read_text()
    assert page(text, content) == text, "run python -m tests.chaos.report"


def test_a_row_shows_what_was_measured_before_and_after() -> None:
    after = {**RESULT, "livez_worst_s": 12.5, "front_ends": 0, "broken": []}
    text = table({**MEASURED, "attacks": [RESULT]}, {**MEASURED, "attacks": [after]})
    row = next(line for line in text.splitlines() if line.startswith("| `header_lines`: "))
    assert "| 0.25 s → 12 s |" in row
    assert "250,000 kB → 250,000 kB" in row
    assert row.endswith("| none |")
    assert "| `header_lines` | bytes taken | 65536 | 65536 |" in text


def test_what_was_not_measured_has_no_figure() -> None:
    text = table({**MEASURED, "attacks": [RESULT]}, {"attacks": []})
    assert "- After: not measured yet." in text
    assert "0.25 s → –" in text


def test_a_promise_that_is_broken_stands_in_its_row() -> None:
    text = table({"attacks": []}, {**MEASURED, "attacks": [RESULT]})
    assert "an error answer has 250000000 bytes |" in text


def test_what_stands_around_the_markers_is_kept() -> None:
    assert page(f"a\n{BEGIN}old{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:tests|app|models|workers|tools)/[\w/.]+)`", PAGE.read_text())
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_unkept_promise_of_livez_names_every_attack_that_broke_it() -> None:
    attacks = load(RESULTS / "attacks_after.json")["attacks"]
    late = {each["attack"] for each in attacks if each["livez_worst_s"] > 1}
    unkept = PAGE.read_text().partition("## Promises that are not kept yet")[2]
    rows = [line for line in unkept.splitlines() if line.startswith("| `/livez` within 1 s")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == late


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_says_what_it_does(name: str) -> None:
    about = ATTACKS[name].about
    assert about.endswith(".")
    assert len(about) < 100
