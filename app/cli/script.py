"""The command line: `darkroom COMMAND`. `app.cli.parser` lists the commands.

This module imports almost nothing, so that Ctrl-C ends the process without a traceback at any time.
"""

import os
import sys
from collections.abc import Sequence

from models.exit_codes import ExitCode

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# NumPy starts a thread a core for its linear algebra when it is imported. They spin for 2 s of CPU
# time in all on 16 cores, in each process of a server, and no product here is large enough for
# them (`workers.filters.separable`).

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# PyTorch's threads share one image alone. By default each of them polls 300,000 times at the end of
# a layer before it sleeps, so on busy cores they take the time of the threads that they wait for:
# an image alone took 51 ms of CPU time on two busy cores, and takes 23 with 1,000 polls (about
# 2 µs). libgomp reads the variable when it is loaded, so it is set here, for all processes.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its `ExitCode`; Ctrl-C ends the process."""
    try:
        from app.cli.parser import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # threads may still load or compute, and are not waited for
        os._exit(ExitCode.INTERRUPTED)
