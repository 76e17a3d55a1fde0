"""Attack a real server and measure what its neighbours see.

`python -m tests.chaos.attacks [NAME …]` runs all attacks, or those whose names begin so. For each
a fresh server is started; 15 good clients send ordinary photos while the attack lasts, `/livez`
is asked ten times a second, memory and CPU time of all processes of the server are read.
`--checkout PATH` attacks the code of another checkout by its own interpreter. `--behind nginx` puts
a proxy of `docker/edge` between the clients and the server. With `--server-cpus`
the server has CPUs of its own, so that what clients take is not missing there. The last line is a
JSON object; the exit code is 1 when a promise is broken.
"""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.chaos.attacks.catalogue import ATTACKS
from tests.chaos.harness.attack import Attack, Target
from tests.chaos.harness.checkout import HERE, Checkout
from tests.chaos.harness.trial import as_attacker, run
from tests.edge import PROGRAMS


def main() -> int:
    """Run the attacks that the command line names; return the exit code."""
    arguments = _arguments()
    if arguments.as_attacker:
        name, port, pid, source, folder = arguments.as_attacker
        as_attacker(ATTACKS[name], Target(int(port), int(pid), source, folder))
        return 0
    if arguments.list:
        for name, attack in ATTACKS.items():
            print(f"{name:28} {attack.about}")
        return 0
    names = _chosen(arguments.names)
    cpus = frozenset(arguments.server_cpus)
    checkout = Checkout(arguments.checkout.resolve(), cpus, arguments.behind)
    if others := os.sched_getaffinity(0) - checkout.cpus:
        os.sched_setaffinity(0, others)  # for the attacker and the neighbours
    results = []
    for name in names:
        attack = with_flags(ATTACKS[name], arguments.flags)
        front_ends = max(arguments.front_ends, 2 if attack.front_ends else 0)
        try:
            found = run(attack, checkout, front_ends, arguments.own_addresses)
        except (OSError, RuntimeError, TimeoutError) as error:  # this attack's own failure
            found = {"attack": name, "front_ends": front_ends, "broken": [f"not run: {error}"]}
        results.append(found)
        print(f"{name}: {found['broken'] or 'all promises kept'}", file=sys.stderr, flush=True)
        print(json.dumps(found), flush=True)
    report = {
        "program": "attacks",
        "command": "python -m tests.chaos.attacks " + " ".join(sys.argv[1:]),
        "commit": checkout.commit(),
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "server_cpus": arguments.server_cpus,
        "behind": arguments.behind,
        "load_before": round(os.getloadavg()[0], 1),
        "note": arguments.note,
        "attacks": results,
    }
    line = json.dumps(report)
    if arguments.out:
        arguments.out.write_text(json.dumps(_merged(arguments.out, report), indent=1) + "\n")
    print(line)
    return int(any(each["broken"] for each in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="an attack, or how names begin")
    parser.add_argument("--checkout", type=Path, default=HERE, help="whose code to attack")
    parser.add_argument("--front-ends", type=int, default=0, help="0: one process does all")
    parser.add_argument(
        "--own-addresses", action="store_true", help="attacker and neighbours differ in address"
    )
    parser.add_argument("--out", type=Path, help="a JSON file that the results are merged into")
    parser.add_argument("--note", default="", help="what a reader should know of the machine")
    parser.add_argument(
        "--server-cpus", type=int, nargs="+", default=[], help="the server gets these, clients none"
    )
    parser.add_argument("--flags", default="", help="more flags of `darkroom serve`, in one string")
    parser.add_argument("--behind", choices=PROGRAMS, help="a proxy of docker/edge in between")
    parser.add_argument("--list", action="store_true", help="name all attacks")
    parser.add_argument("--as-attacker", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args()


def with_flags(attack: Attack, flags: str) -> Attack:
    """Return the attack on a server that is started with these flags besides its own."""
    return replace(attack, flags=(*attack.flags, *shlex.split(flags)))


def _chosen(names: list[str]) -> list[str]:
    """Return all attacks, or those whose name begins with one of `names`."""
    found = [n for n in ATTACKS if not names or any(n.startswith(each) for each in names)]
    if not found:
        raise SystemExit(f"no attack is named {', '.join(names)}; --list names all")
    return found


def _merged(path: Path, report: dict[str, object]) -> dict[str, object]:
    """Return `report` with the results that an earlier run left there for other attacks."""
    new = report["attacks"]
    assert isinstance(new, list)
    if not path.exists():
        return report
    measured = {(each["attack"], each["front_ends"]) for each in new}
    old = json.loads(path.read_text())["attacks"]
    kept = [each for each in old if (each["attack"], each["front_ends"]) not in measured]
    return {**report, "attacks": kept + new}


if __name__ == "__main__":
    sys.exit(main())
