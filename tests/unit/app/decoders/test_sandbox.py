"""What a decoder process cannot do, tried from inside one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import PATIENCE

ROOT = Path(__file__).parents[4]

PROGRAM = f"""
import mmap, os, socket, subprocess, sys, threading
sys.path.append({str(ROOT)!r})
import numpy
from app.decoders import child, sandbox

def map_shared(count):
    for n in range(count):
        kept.append(mmap.mmap(-1, 5 << 20))

def granted(n_bytes):
    allowance.begin()
    allowance.grant(n_bytes, 60.0)

for attempt in sys.argv[1:]:
    if pid := os.fork():
        os.waitpid(pid, 0)
        os.write(1, b"\\n")
        continue
    kept = []
    allowance = sandbox.Allowance()
    said = sandbox.enter(max_pixels=1_000_000, max_file=1 << 20) and "unsupported"
    try:
        said or exec(attempt)
    except BaseException as error:
        said = type(error).__name__
    os.write(1, (said or "done").encode())
    os._exit(0)
"""
"""A program that makes each attempt in a decoder process, forked as decoders are."""


REFUSED = [
    "open('/etc/passwd')",
    "open('/tmp/written-by-a-decoder', 'w')",
    "os.listdir('/')",
    "socket.socket()",
    "socket.socketpair()",
    "os.fork()",
    "os.kill(os.getppid(), 9)",
    "os.execv('/bin/true', ['true'])",
    "os.setuid(0)",
    "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    "os.memfd_create('x')",
]
ARRAY = "numpy.ones(80 << 20, numpy.uint8)"
RAISED = "__import__('resource').setrlimit(__import__('resource').RLIMIT_DATA, (-1, -1))"


ATTEMPTS = {
    **dict.fromkeys(REFUSED, "PermissionError"),
    "threading.Thread(target=print).start()": "RuntimeError",
    "numpy.zeros(10 << 20)": "done",
    "numpy.ones(300 << 20, numpy.uint8)": "MemoryError",
    f"granted(90 << 20); {ARRAY}": "done",
    f"granted(70 << 20); {ARRAY}": "MemoryError",
    f"kept.append({ARRAY}); granted(90 << 20); {ARRAY}": "done",
    "map_shared(2)": "done",
    "map_shared(200)": "OSError",
    RAISED: "ValueError PermissionError",
    "assert 'pydantic' not in sys.modules": "done",  # it takes half as long as all else together
}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """Return what came of each attempt; it is empty where the process was killed."""
    command = [sys.executable, "-P", "-c", PROGRAM, *ATTEMPTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stdout.splitlines()
    if "unsupported" in lines:
        pytest.skip("this kernel has no seccomp filters")
    return dict(zip(ATTEMPTS, lines, strict=True))


@pytest.mark.parametrize("code", ATTEMPTS)
def test_a_decoder_has_the_memory_that_it_is_granted_and_nothing_else(
    found: dict[str, str], code: str
) -> None:
    assert found[code] in ATTEMPTS[code].split()
