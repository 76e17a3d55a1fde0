"""The dependency audit says what it found, and says loudly where it could not look."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.audit import LOCKS, ROOT, TIMEOUT, audit, report

GOOD = {"name": "numpy", "version": "2.3.0", "vulns": []}
BAD = {
    "name": "pillow",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": [], "description": ""}],
}


def audited(output: object, *, required: bool) -> tuple[list[str], int]:
    """Return the report about a lock file for which pip-audit printed this, or raised it."""

    def run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        if isinstance(output, Exception):
            raise output
        text = output if isinstance(output, str) else json.dumps(output)
        return subprocess.CompletedProcess(list(words), 1, text, "no name")

    return report([audit(Path("requirements.lock"), run)], required=required)


def test_a_known_vulnerability_fails_and_names_the_version_that_mends_it() -> None:
    lines, code = audited({"dependencies": [GOOD, BAD], "fixes": []}, required=False)
    assert code == 1
    assert "VULNERABLE: requirements.lock: pillow 1.0: PYSEC-1, fixed in 1.1" in lines
    checked = (["requirements.lock: 1 packages checked"], 0)
    assert audited({"dependencies": [GOOD], "fixes": []}, required=True) == checked


@pytest.mark.parametrize("output", ["no JSON", subprocess.TimeoutExpired("pip-audit", TIMEOUT)])
def test_without_a_network_the_audit_says_so_and_fails_only_where_it_is_required(
    output: object,
) -> None:
    lines, code = audited(output, required=False)
    assert (lines[0].startswith("NOT CHECKED: requirements.lock"), code) == (True, 0)
    assert audited(output, required=True)[1] == 1


def test_every_lock_file_is_audited() -> None:
    found = [*ROOT.glob("*.lock"), *(ROOT / "docker").glob("*.lock")]
    assert set(LOCKS) == {str(path.relative_to(ROOT)) for path in found}
