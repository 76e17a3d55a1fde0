"""The priority of threads: threads that compute in the background yield to all threads beside
them.
"""

import os
import sys
import threading
from functools import cache

NICER = 5
"""How much nicer these threads are than others. Linux gives such a thread a third of the time of
another one, and runs another one that wakes up in its place. A lower priority can harm others on a
machine that other programs keep busy, because a thread that holds the interpreter's lock must get
on for them. Beside a job, on two such cores, the p99 of requests was 1.42 and 1.19 times its value
alone with 5; 1.05, 0.87 and 13.2 times with 10; 2.0 times with 19; and 4 to 10 times with
SCHED_IDLE."""

NICEST = 19
"""The lowest priority that there is."""


def lower_priority() -> bool:
    """Let the calling thread yield to further threads; return whether the system can do so.

    The priority of the thread cannot be raised again.
    """
    if sys.platform != "linux":  # elsewhere priorities belong to processes
        return False
    try:
        thread = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICER
        os.setpriority(os.PRIO_PROCESS, thread, min(niceness, NICEST))
    except OSError:
        return False
    return True


@cache
def can_lower_priority() -> bool:
    """Return whether `lower_priority` works here, by a thread that tries it."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(lower_priority()))
    thread.start()
    thread.join()
    return found == [True]
