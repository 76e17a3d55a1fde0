"""A process for the supervisor's tests: it follows its orders and records that it ran.

It reports that it is ready unless it is `silent` or `broken`, and gives no further sign of life. It
lives for `seconds` and ends when it is ordered to leave, unless it `stays`; a process that is
`deaf` ignores SIGTERM.
"""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    """Follow the orders that the supervisor wrote to standard input."""
    orders = json.loads(sys.stdin.readline())
    lives = Path(orders["lives"])
    if orders.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _note(lives, f"{sys.argv[1]} {os.getpid()} {orders.get('mark', '')}")
    if orders.get("broken"):
        sys.exit(orders["code"])
    if not orders.get("silent"):
        os.write(sys.stdin.fileno(), b"{}\n")
    end = time.monotonic() + orders.get("seconds", 0)
    while (left := end - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and _leaves(sys.stdin.readline()):
            _note(Path(f"{lives}.left"), str(os.getpid()))
            if not orders.get("stays"):
                break
    sys.exit(orders.get("code", 0))


def _note(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line + "\n")


def _leaves(line: str) -> bool:
    if not line:
        sys.exit(70)
    return True


if __name__ == "__main__":
    main()
