"""Requests made by schemathesis of the whole OpenAPI document: none may be a fault of the server.

`python -m tests.chaos.openapi [--examples N] [--seed N]`. Each operation gets the
document's examples, the bounds of each parameter and N random requests, valid and invalid ones, and
each answer must have a status below 500 and a type that the document names with this status. The
exit code is that of schemathesis, which is 0 if nothing failed.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.server import serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance"


def command(port: int, examples: int, seed: int) -> list[str]:
    """Return the words that start schemathesis, by the environment that runs this."""
    program = Path(sys.executable).with_name("schemathesis")
    return [
        *(str(program), "run", f"http://127.0.0.1:{port}/openapi.json"),
        *("--max-examples", str(examples), "--seed", str(seed), "--checks", CHECKS),
        *("--phases", "examples,coverage,fuzzing", "--continue-on-failure"),
        *("--request-timeout", "35", "--suppress-health-check", "all", "--no-color"),
    ]


def main() -> int:
    """Start a server, let schemathesis ask it, and end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=50, help="random requests an operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15, help="after which it is ended")
    options = parser.parse_args()
    flags = ("--weights", "random", "--log-level", "error", "--fetch-total-timeout", "2")
    with TemporaryDirectory() as jobs, serving(*flags, "--data-folder", jobs) as served:
        words = command(served.port, options.examples, options.seed)
        return subprocess.run(words, timeout=60 * options.minutes).returncode


if __name__ == "__main__":
    sys.exit(main())
