"""Ask pip-audit whether a locked dependency has a known vulnerability; `make lint` runs it.

Where the vulnerability service cannot be reached, or does not know a package, nothing was checked.
The output says so in capitals. It is an error only with `--required`, because CI may be offline.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = (
    "requirements.lock",
    "requirements-cpu.lock",
    "requirements-gpu.lock",
    "requirements-gpu-cuda13.lock",
    "requirements-dev.lock",
    "requirements-extras.lock",
    "requirements-docs.lock",
    "docker/requirements-build.lock",
)
TIMEOUT = 120
"""Seconds that one lock file may take."""


@dataclass(frozen=True, slots=True)
class Audit:
    """One lock file: packages checked, packages unknown to the service, vulnerabilities found.

    `problem` says why nothing could be checked, and is empty otherwise.
    """

    lock: str
    checked: int = 0
    unknown: tuple[str, ...] = ()
    vulnerable: tuple[str, ...] = ()
    problem: str = ""


Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def audit(lock: Path, run: Run) -> Audit:
    """Audit one lock file. Hashes are required, and no package is resolved or installed."""
    words = [sys.executable, "-m", "pip_audit", "-r", str(lock), "--disable-pip"]
    words += ["--require-hashes", "--format", "json", "--progress-spinner", "off"]
    try:
        done = run(words)
        dependencies = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return Audit(lock.name, problem=f"no answer within {TIMEOUT} s")
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines()
        return Audit(lock.name, problem=lines[-1] if lines else f"exit code {done.returncode}")
    unknown = tuple(each["name"] for each in dependencies if "skip_reason" in each)
    found = tuple(
        f"{each['name']} {each['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for each in dependencies
        for vulnerability in each.get("vulns", ())
    )
    checked = len(dependencies) - len(unknown)
    problem = "" if checked else "the vulnerability service knows none of the packages"
    return Audit(lock.name, checked, unknown, found, problem)


def report(audits: Sequence[Audit], required: bool) -> tuple[list[str], int]:
    """Return lines for people and the exit code: 1 for a vulnerability, or unchecked where
    required.
    """
    lines = []
    for each in audits:
        if each.problem:
            lines.append(f"NOT CHECKED: {each.lock}: no vulnerability data ({each.problem})")
            continue
        lines.append(f"{each.lock}: {each.checked} packages checked")
        lines.extend(f"VULNERABLE: {each.lock}: {text}" for text in each.vulnerable)
        if each.unknown:
            lines.append(f"NOT CHECKED: {each.lock}: unknown packages: {', '.join(each.unknown)}")
    unchecked = any(each.problem or each.unknown for each in audits)
    if unchecked and not required:
        lines.append("NOT CHECKED is no error here; where there is a network add --required")
    vulnerable = any(each.vulnerable for each in audits)
    return lines, int(vulnerable or (required and unchecked))


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def main() -> int:
    """Run the audits and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="*", type=Path, default=[ROOT / name for name in LOCKS])
    parser.add_argument("--required", action="store_true", help="fail where nothing was checked")
    arguments = parser.parse_args()
    lines, code = report([audit(lock, _run) for lock in arguments.locks], arguments.required)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
