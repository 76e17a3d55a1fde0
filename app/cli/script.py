"""The command line: `darkroom COMMAND`. `app.cli.catalogue` lists the commands.

This module imports almost nothing, so that Ctrl-C ends the process without a traceback at any time.
"""

import os
import sys
from collections.abc import Sequence

from models.exit_codes import ExitCode

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# NumPy starts a thread a core for its linear algebra when it is imported. They spin for 2 s of CPU
# time in all on 16 cores, in each process of a server, and no product here is large enough for
# them (`workers.filters.separable.toeplitz`).


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, one of `ExitCode`; Ctrl-C ends the process."""
    try:
        from app.cli.parser import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # threads may still load or compute, and are not waited for
        os._exit(ExitCode.INTERRUPTED)
