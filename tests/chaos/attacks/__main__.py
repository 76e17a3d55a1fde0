"""Attack a real server and measure what its neighbours see.

`python -m tests.chaos.attacks [NAME …]` runs all attacks, or those whose names begin so. For each
a fresh server is started; 15 good clients send ordinary photos while the attack lasts, `/livez`
is asked ten times a second, memory and CPU time of all processes of the server are read. With
`--through nginx` all clients connect to that proxy in front of the server, and the same promises
are judged. The last line is a JSON object; the exit code is 1 when a promise is broken.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.harness.attack import Target
from tests.chaos.harness.trial import as_attacker, run
from tests.edge import PROGRAMS


def main() -> int:
    """Run the attacks that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an attack, or how names begin")
    parser.add_argument("--through", choices=PROGRAMS, help="a proxy that all clients connect to")
    parser.add_argument("--out", type=Path, help="a JSON file in which the results replace others")
    parser.add_argument("--note", default="", help="what a reader should know of the machine")
    parser.add_argument("--as-attacker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_attacker:
        name, port, pid, source = arguments.as_attacker
        as_attacker(ATTACKS[name], Target(int(port), int(pid), source))
        return 0
    words = ["git", "describe", "--always", "--dirty=+"]
    results: list[dict[str, Any]] = []
    report = {
        "program": "attacks",
        "command": "python -m tests.chaos.attacks " + " ".join(sys.argv[1:]),
        "commit": subprocess.run(words, capture_output=True, text=True).stdout.strip(),
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "load_before": round(os.getloadavg()[0], 1),
        "note": arguments.note,
        "attacks": results,
    }
    for name, attack in ATTACKS.items():
        if arguments.names and not name.startswith(tuple(arguments.names)):
            continue
        try:
            found = run(attack, arguments.through)
        except (OSError, RuntimeError, TimeoutError) as error:  # this attack's own failure
            found = {"attack": name, "through": arguments.through, "broken": [f"not run: {error}"]}
        results.append(found)
        print(f"{name}: {found['broken'] or 'all promises kept'}", file=sys.stderr, flush=True)
        print(json.dumps(found), flush=True)
        if arguments.out:
            _keep(arguments.out, report, found)
    print(json.dumps(report))
    return int(any(each["broken"] for each in results))


def _keep(path: Path, report: dict[str, Any], found: dict[str, Any]) -> None:
    """Write the report with the results that the file has of other attacks, and this one."""
    key = itemgetter("attack", "through")
    old = json.loads(path.read_text())["attacks"] if path.exists() else []
    kept = [each for each in old if key(each) != key(found)]
    path.write_text(json.dumps(report | {"attacks": [*kept, found]}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
