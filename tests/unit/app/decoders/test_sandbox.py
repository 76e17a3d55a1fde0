"""What a decoder process cannot do, tried from inside one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import PATIENCE

ROOT = Path(__file__).parents[4]

INSIDE = """
import ctypes, mmap, os, socket, subprocess, sys, threading
sys.path.append({root!r})
import numpy
from app.decoders import sandbox

def map_shared(count):
    for n in range(count):
        kept.append(mmap.mmap(-1, 5 << 20))

def granted(n_bytes):
    allowance.begin()
    allowance.grant(n_bytes, 60.0)

kept = []
allowance = sandbox.Allowance()
problem = sandbox.enter(max_pixels=1_000_000, max_file=1 << 20)
if problem:
    os.write(1, b"unsupported")
    os._exit(0)
try:
    {attempt}
except BaseException as error:
    os.write(1, type(error).__name__.encode())
    os._exit(0)
os.write(1, b"done")
"""


def attempted(code: str) -> str:
    program = INSIDE.format(root=str(ROOT), attempt=code)
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, timeout=PATIENCE
    )
    said = done.stdout.decode()
    if said == "unsupported":
        pytest.skip("this kernel has no seccomp filters")
    return said or f"ended by {-done.returncode}"


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


@pytest.mark.parametrize(
    ("code", "found"),
    [
        *((code, "PermissionError") for code in REFUSED),
        ("threading.Thread(target=print).start()", "RuntimeError"),
        ("numpy.zeros(10 << 20)", "done"),
        ("numpy.ones(300 << 20, numpy.uint8)", "MemoryError"),
        (f"granted(90 << 20); {ARRAY}", "done"),
        (f"granted(70 << 20); {ARRAY}", "MemoryError"),
        (f"kept.append({ARRAY}); granted(90 << 20); {ARRAY}", "done"),
        ("map_shared(2)", "done"),
        ("map_shared(200)", "OSError"),
        (RAISED, "ValueError PermissionError"),
    ],
)
def test_a_decoder_has_the_memory_that_it_is_granted_and_nothing_else(
    code: str, found: str
) -> None:
    assert attempted(code) in found.split()
