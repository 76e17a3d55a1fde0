"""A process for the supervisor's tests: does what its orders say, and notes that it lived."""

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    orders = json.loads(sys.stdin.readline())
    with Path(orders["lives"]).open("a") as lives:
        lives.write(f"{sys.argv[1]} {os.getpid()}\n")
    time.sleep(orders.get("seconds", 0))
    sys.exit(orders.get("code", 0))


if __name__ == "__main__":
    main()
