"""The dependency audit says what it found, and says loudly where it could not look."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.audit import LOCKS, ROOT, TIMEOUT, audit, report

GOOD = [{"name": "numpy", "version": "2.3.0", "vulns": []}]
BAD = [{"name": "pillow", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}]
VULNERABLE = "VULNERABLE: requirements.lock: pillow 1.0: PYSEC-1, fixed in 1.1"
NO_ANSWER: list[object] = ["no JSON", subprocess.TimeoutExpired("pip-audit", TIMEOUT)]


@pytest.mark.parametrize(
    ("output", "required", "line", "code"),
    [
        (json.dumps({"dependencies": BAD, "fixes": []}), False, VULNERABLE, 1),
        (json.dumps({"dependencies": GOOD}), True, "requirements.lock: 1 packages checked", 0),
        *((each, False, "NOT CHECKED: requirements.lock", 0) for each in NO_ANSWER),
        *((each, True, "NOT CHECKED: requirements.lock", 1) for each in NO_ANSWER),
    ],
    ids=range(6),
)
def test_a_vulnerability_fails_and_a_missing_answer_only_where_it_is_required(
    output: object, required: bool, line: str, code: int
) -> None:
    def run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        if isinstance(output, Exception):
            raise output
        return subprocess.CompletedProcess(words, 1, str(output), "no name")

    lines, found = report([audit(Path("requirements.lock"), run)], required=required)
    assert found == code
    assert any(each.startswith(line) for each in lines)


def test_every_lock_file_is_audited() -> None:
    found = [*ROOT.glob("*.lock"), *(ROOT / "docker").glob("*.lock")]
    assert set(LOCKS) == {str(path.relative_to(ROOT)) for path in found}
