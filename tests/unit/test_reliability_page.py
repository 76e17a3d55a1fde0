"""The page of attacks shows the measured figures; `docs/reliability.md` names tests that exist."""

import re

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.report import PAGE, RESULTS, ROOT, load, page

RELIABILITY = (ROOT / "docs" / "reliability.md").read_text()


def test_the_page_has_the_figures_of_the_measured_file() -> None:
    assert PAGE.read_text() == page(load(RESULTS)), "run python -m tests.chaos.report"


def test_the_page_lists_every_promise_that_an_attack_tests() -> None:
    promises = {int(number) for number in re.findall(r"^\| (\d+) \|", RELIABILITY, re.M)}
    assert promises == set(range(1, 13))
    assert {attack.promise for attack in ATTACKS.values()} <= promises


def test_every_attack_says_what_it_does() -> None:
    for name in ATTACKS:
        about = ATTACKS[name].about
        assert about.endswith(".")
        assert len(about) < 100
