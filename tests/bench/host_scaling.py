"""How much more work a host does on all of some CPUs than on half of them, without a server.

CPUs of a virtual machine may be threads of the host's cores, which is not shown to the guest: then
twice as many of them do less than twice the work. Python is a loop over small integers, and a copy
is one of 64 MB, which no cache holds.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

Cpus = frozenset[int]

SECONDS = 1.5

_PYTHON = "sum(range(2000))"
_COPY = "target[:] = source"
_PROGRAM = """
import os, sys, time
import numpy
os.sched_setaffinity(0, [int(sys.argv[1])])
source = numpy.ones(1 << 26, numpy.uint8); target = source.copy()
print("ready", flush=True)
sys.stdin.readline()
end, n = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    for _ in range(4):
        {}
    n += 4
print(n)
"""


def scaling(half: Cpus, every: Cpus) -> dict[str, float]:
    """Return the work on all CPUs divided by the work on half of them, of both kinds."""
    return {
        name: round(_work(work, every) / _work(work, half), 2)
        for name, work in (("python", _PYTHON), ("copies", _COPY))
    }


@contextmanager
def busy(cpus: Cpus) -> Iterator[None]:
    """Compute on each of these CPUs while the block runs."""
    programs = _started(_PYTHON, cpus, 3600.0)
    try:
        yield
    finally:
        for each in programs:
            each.kill()
            each.wait()


def _work(work: str, cpus: Cpus) -> int:
    """Return how often a piece of work is done on these CPUs together within `SECONDS`."""
    return sum(int(each.communicate()[0]) for each in _started(work, cpus, SECONDS))


def _started(work: str, cpus: Cpus, seconds: float) -> "list[subprocess.Popen[str]]":
    """Start a program on each CPU; all of them begin to work at once."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(work), str(cpu), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for cpu in sorted(cpus)
    ]
    for each in programs:
        assert each.stdout is not None
        each.stdout.readline()
    for each in programs:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    return programs
