"""The page of attacks shows the measured figures; `docs/reliability.md` names tests that exist."""

import re
from typing import Any

import pytest

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.report import PAGE, RESULTS, ROOT, load, page

RELIABILITY = (ROOT / "docs" / "reliability.md").read_text()

RESULT: dict[str, Any] = {
    "attack": "endless_headers",
    "livez_worst_s": 0.25,
    "neighbours": 15,
    "neighbours_spared": 14,
    "memory_over_idle_mb": 12,
    "cpu_s": 3.2,
    "broken": ["1 of 15 neighbours was not answered in time"],
}
MEASURED = {"commit": "abc", "cores": 2, "machine": "x", "when": "2026-01-01", "note": "busy"}


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))


def test_the_page_has_the_figures_of_the_measured_file() -> None:
    assert PAGE.read_text() == page(load(RESULTS)), "run python -m tests.chaos.report"


def test_a_row_shows_what_was_measured_and_the_promise_that_is_broken() -> None:
    shown = row(page({**MEASURED, "attacks": [RESULT]}), "endless_headers")
    assert "| 4 | 0.25 s | 14 of 15 | 12 MB | 3 s | 1 of 15 neighbours was not" in shown


def test_an_attack_without_a_result_has_no_figure() -> None:
    assert "not measured" in row(page({**MEASURED, "attacks": []}), "endless_headers")


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:tests|app|models|workers|tools)/[\w/.]+)`", RELIABILITY)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_page_lists_every_promise_that_an_attack_tests() -> None:
    promises = {int(number) for number in re.findall(r"^\| (\d+) \|", RELIABILITY, re.M)}
    assert promises == set(range(1, 13))
    assert {attack.promise for attack in ATTACKS.values()} <= promises


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_says_what_it_does(name: str) -> None:
    about = ATTACKS[name].about
    assert about.endswith(".")
    assert len(about) < 100
