"""Validate, predict, and write the result, the page and its charts: `python -m tools.scale`."""

import argparse
import json
import subprocess
from concurrent.futures import Executor, ProcessPoolExecutor

from tools.scale import predictions, validation
from tools.scale.measured import RESULTS, result
from tools.scale.pages import page, plots


def _compared(pool: Executor) -> list[validation.Case]:
    """Return all comparisons with measurements."""
    parts = pool.map(validation.part, range(len(validation.PARTS)))
    return [case for part in parts for case in part]


def _report(pool: Executor) -> dict[str, object]:
    """Return the whole result."""
    wait = predictions.predicted(pool)
    git = ["git", "rev-parse", "--short", "HEAD"]
    return {
        "benchmark": "scale",
        "command": "python -m tools.scale",
        "commit": subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(),
        "seeds": list(predictions.SEEDS),
        "router_us": predictions.router_seconds(),
        "validation": _compared(pool),
        "predictions": wait(),
    }


def main() -> None:
    """Run the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--page", action="store_true", help="only write the page and its charts")
    arguments.add_argument("--compare", action="store_true", help="keep the predictions")
    arguments.add_argument("--processes", type=int, default=3, help="processes that simulate")
    options = arguments.parse_args()
    if not options.page:
        with ProcessPoolExecutor(options.processes) as pool:
            if options.compare:
                report = {**result("scale"), "validation": _compared(pool)}
            else:
                report = _report(pool)
        (RESULTS / "scale.json").write_text(json.dumps(report, indent=1) + "\n")
    plots.main()
    page.main()


if __name__ == "__main__":
    main()
