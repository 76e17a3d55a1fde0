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
    "| attack | promise | alone | through nginx |",
    "|---|---|---|---|",
)

Result = Mapping[str, Any]


def load(path: Path) -> dict[str, Any]:
    """Return a file of results."""
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def page(report: Mapping[str, Any]) -> str:
    """Return the page: where and when its figures were measured, and a row for each attack."""
    measured = {(each["attack"], each["through"]): each for each in report["attacks"]}
    note = f", {report['note']}" if report.get("note") else ""
    return "\n".join(
        [
            "# Attacks",
            "",
            "`python -m tests.chaos.report` writes this page. "
            "[Reliability](../../../docs/reliability.md) has the promises and the method.",
            "",
            f"Commit `{report['commit']}`, {report['cores']} cores ({report['machine']}{note}), "
            f"{report['when']}. A cell says whether all promises held, and gives the slowest "
            "answer of `/livez`, the good clients that were answered in time, the memory of "
            "Darkroom over its idle state, and its CPU time:",
            "",
            *_HEAD,
            *(
                f"| `{name}`: {attack.about.rstrip('.')} | {attack.promise} "
                f"| {_cell(measured.get((name, None)))} | {_cell(measured.get((name, 'nginx')))} |"
                for name, attack in ATTACKS.items()
            ),
            "",
        ]
    )


def _cell(result: Result | None) -> str:
    if result is None or "cpu_s" not in result:
        return "not measured"
    figures = (
        "; ".join(result["broken"]) or "held",
        f"{result['livez_worst_s']:.2f} s",
        f"{result['neighbours_spared']} of {result['neighbours']}",
        f"{max(0, result['memory_over_idle_mb'])} MB",
        f"{result['cpu_s']:.0f} s",
    )
    return ", ".join(figures)


def main() -> int:
    """Write the page; the exit code is 0."""
    PAGE.write_text(page(load(RESULTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
