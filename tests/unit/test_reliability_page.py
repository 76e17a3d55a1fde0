"""Attacks: their page shows the measured figures, `docs/reliability.md` lists their promises, and
fuzzers mutate the same files in every run.
"""

import re

from tests.chaos import fuzz_codec
from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.report import PAGE, RESULTS, ROOT, load, page

RELIABILITY = (ROOT / "docs" / "reliability.md").read_text()


def test_the_page_has_the_figures_of_the_measured_file() -> None:
    assert PAGE.read_text() == page(load(RESULTS)), "run python -m tests.chaos.report"


def test_the_page_lists_every_promise_that_an_attack_tests() -> None:
    promises = {int(number) for number in re.findall(r"^\| (\d+) \|", RELIABILITY, re.M)}
    assert promises == set(range(1, 13))
    assert {attack.promise for attack in ATTACKS.values()} <= promises


def test_the_files_that_fuzzers_mutate_are_the_same_in_every_run() -> None:
    assert fuzz_codec.drawn() == fuzz_codec.drawn()
