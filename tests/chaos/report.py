"""Write `tests/bench/results/attacks.md` from the catalogue of attacks and the measured file.

`python -m tests.chaos.report` writes the page, so that no figure is typed by hand. A unit test
compares the page with the file.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.attacks.catalogue import ATTACKS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tests" / "bench" / "results" / "attacks.json"
PAGE = RESULTS.with_suffix(".md")

_HEAD = (
    "| attack | promise | `/livez`, worst | neighbours in time | memory | CPU | broken |",
    "|---|---|---|---|---|---|---|",
)

Result = Mapping[str, Any]


def load(path: Path) -> dict[str, Any]:
    """Return a file of results."""
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def page(report: Mapping[str, Any]) -> str:
    """Return the page: where and when its figures were measured, and a row for each attack."""
    measured = {each["attack"]: each for each in report["attacks"]}
    note = f", {report['note']}" if report.get("note") else ""
    return "\n".join(
        [
            "# Attacks",
            "",
            "`python -m tests.chaos.report` writes this page. "
            "[Reliability](../../../docs/reliability.md) has the promises and the method.",
            "",
            f"Commit `{report['commit']}`, {report['cores']} cores ({report['machine']}{note}), "
            f"{report['when']}:",
            "",
            *_HEAD,
            *(_row(name, measured.get(name)) for name in ATTACKS),
            "",
        ]
    )


def _row(name: str, result: Result | None) -> str:
    attack = ATTACKS[name]
    cells = [f"`{name}`: {attack.about.rstrip('.')}", str(attack.promise)]
    if result is None or "cpu_s" not in result:
        cells += ["not measured"] + ["–"] * 4
    else:
        asked = result["neighbours"]
        cells += [
            f"{result['livez_worst_s']:.2f} s",
            f"{result['neighbours_spared']} of {asked}" if asked else "none asked",
            f"{max(0, result['memory_over_idle_mb'])} MB",
            f"{result['cpu_s']:.0f} s",
            "; ".join(result["broken"]) or "none",
        ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Write the page; the exit code is 0."""
    PAGE.write_text(page(load(RESULTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
