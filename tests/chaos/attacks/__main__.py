"""Attack a real server and measure what its neighbours see.

`python -m tests.chaos.attacks [NAME …]` runs all attacks, or those whose names begin so. For each
a fresh server is started; 15 good clients send ordinary photos while the attack lasts, `/livez`
is asked ten times a second, memory and CPU time of all processes of the server are read. The last
line is a JSON object; the exit code is 1 when a promise is broken.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.harness.attack import Target
from tests.chaos.harness.trial import as_attacker, run


def main() -> int:
    """Run the attacks that the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an attack, or how names begin")
    parser.add_argument("--out", type=Path, help="a JSON file in which the results replace others")
    parser.add_argument("--note", default="", help="what a reader should know of the machine")
    parser.add_argument("--list", action="store_true", help="name all attacks")
    parser.add_argument("--as-attacker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_attacker:
        name, port, pid, source = arguments.as_attacker
        as_attacker(ATTACKS[name], Target(int(port), int(pid), source))
        return 0
    if arguments.list:
        for name, attack in ATTACKS.items():
            print(f"{name:28} {attack.about}")
        return 0
    results = []
    for name, attack in ATTACKS.items():
        if arguments.names and not name.startswith(tuple(arguments.names)):
            continue
        try:
            found = run(attack)
        except (OSError, RuntimeError, TimeoutError) as error:  # this attack's own failure
            found = {"attack": name, "broken": [f"not run: {error}"]}
        results.append(found)
        print(f"{name}: {found['broken'] or 'all promises kept'}", file=sys.stderr, flush=True)
        print(json.dumps(found), flush=True)
    words = ["git", "describe", "--always", "--dirty=+"]
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
    if arguments.out:
        new = {each["attack"] for each in results}
        old = json.loads(arguments.out.read_text())["attacks"] if arguments.out.exists() else []
        merged = [each for each in old if each["attack"] not in new] + results
        arguments.out.write_text(json.dumps(report | {"attacks": merged}, indent=1) + "\n")
    print(json.dumps(report))
    return int(any(each["broken"] for each in results))


if __name__ == "__main__":
    sys.exit(main())
