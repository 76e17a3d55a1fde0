"""The dependency audit says what it found, and says loudly where it could not look."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.audit import LOCKS, ROOT, TIMEOUT, Run, audit, report

GOOD = {"name": "numpy", "version": "2.3.0", "vulns": []}
BAD = {
    "name": "pillow",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": [], "description": ""}],
}
# A name, perhaps with extras, at one version.
PINNED = r"[\w.-]+(\[[\w, -]+\])?==[\w.+!]+"


def answering(*dependencies: object, code: int = 0) -> Run:
    text = json.dumps({"dependencies": dependencies, "fixes": []})
    return lambda words: subprocess.CompletedProcess(list(words), code, text, "")


def failing(stderr: str) -> Run:
    return lambda words: subprocess.CompletedProcess(list(words), 1, "", stderr)


def silent(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    raise subprocess.TimeoutExpired(list(words), TIMEOUT)


def test_a_known_vulnerability_fails_and_names_the_version_that_mends_it() -> None:
    found = audit(Path("requirements.lock"), answering(GOOD, BAD, code=1))
    lines, code = report([found], required=False)
    assert code == 1
    assert "VULNERABLE: requirements.lock: pillow 1.0: PYSEC-1, fixed in 1.1" in lines


def test_packages_without_a_known_vulnerability_pass() -> None:
    found = audit(Path("requirements.lock"), answering(GOOD))
    assert report([found], required=True) == (["requirements.lock: 1 packages checked"], 0)


@pytest.mark.parametrize("run", [failing("requests.ConnectionError: no name"), silent])
def test_without_a_network_the_audit_says_so_and_fails_only_where_it_is_required(run: Run) -> None:
    found = audit(Path("requirements.lock"), run)
    lines, code = report([found], required=False)
    assert (lines[0].startswith("NOT CHECKED: requirements.lock"), code) == (True, 0)
    assert report([found], required=True)[1] == 1


def test_every_locked_package_has_hashes_and_no_address_of_an_index() -> None:
    for name in LOCKS:
        entries: dict[str, int] = {}
        current = ""
        for line in (ROOT / name).read_text().splitlines():
            text = line.strip().rstrip("\\").strip()
            if not text or text.startswith("#"):
                continue
            if text.startswith("--hash="):
                assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text)
                entries[current] += 1
            else:
                assert re.match(PINNED, text), f"{text} is not one pinned version"
                assert "://" not in text
                entries[current := text] = 0
        assert entries
        assert not [entry for entry, hashes in entries.items() if not hashes]


def test_every_lock_file_is_audited() -> None:
    assert set(LOCKS) == {str(path.relative_to(ROOT)) for path in _lock_files()}


def _lock_files() -> list[Path]:
    return [*ROOT.glob("*.lock"), *(ROOT / "docker").glob("*.lock")]
