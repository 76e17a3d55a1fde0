"""The memory that Python allocates, or a process has, while a test runs something."""

import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Trace allocations in a block; yield a function that returns their peak so far, in bytes."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def resident() -> Iterator[Callable[[], int]]:
    """Yield a function that returns by how many bytes the process has grown at most in a block."""

    def peak() -> int:
        return int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) << 10

    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (proc(5))
    before = peak()
    yield lambda: peak() - before
