"""Exit codes of every process of Darkroom, in a single place: commands, servers, workers, front
ends.

`docs/command-line.md` has them as a table; sysexits.h and shells use 69, 74 and 130 too.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a process ended. A supervisor starts it again after each code but OK and WRONG_USAGE."""

    OK = 0
    FAILED = 1
    """An image, a download or a process failed; standard error or the record says which."""
    WRONG_USAGE = 2
    """Arguments or settings that can never work, however often the process is started."""
    CANNOT_LISTEN = 69
    """The address or the port to listen on cannot be had: mostly, it is in use."""
    ORPHANED = 70
    """The process that started this one has ended."""
    BROKEN = 71
    """A front end or a worker cannot trust the memory that they share any more."""
    WORKER_DIED = 72
    """The worker of this process ended unasked, perhaps with its device; start it again."""
    CANNOT_WRITE = 74
    """Results cannot be written: no permission, or no space."""
    INTERRUPTED = 130
    """Ctrl-C (SIGINT), as shells count: 128 + 2."""
    TERMINATED = 143
    """SIGTERM, of `classify` and `filter`; servers finish their work and end with OK."""
