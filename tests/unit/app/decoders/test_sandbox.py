"""What a decoder process cannot do, tried from inside one."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.decoders import sandbox
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


@pytest.mark.parametrize(
    "code",
    [
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
    ],
)
def test_files_sockets_processes_and_executable_memory_are_refused(code: str) -> None:
    assert attempted(code) == "PermissionError"


def test_threads_cannot_be_started() -> None:
    assert attempted("threading.Thread(target=print).start()") == "RuntimeError"


def test_what_decoding_needs_works() -> None:
    assert attempted("numpy.zeros(10 << 20)") == "done"


def test_more_memory_than_the_largest_image_needs_is_refused() -> None:
    assert attempted("numpy.ones(300 << 20, numpy.uint8)") == "MemoryError"


def test_an_image_gets_what_it_is_granted_beside_what_the_process_has() -> None:
    assert attempted("granted(90 << 20); numpy.ones(80 << 20, numpy.uint8)") == "done"
    assert attempted("granted(70 << 20); numpy.ones(80 << 20, numpy.uint8)") == "MemoryError"
    former = "kept.append(numpy.ones(80 << 20, numpy.uint8)); granted(90 << 20)"
    assert attempted(f"{former}; numpy.ones(80 << 20, numpy.uint8)") == "done"


def test_shared_memory_is_bounded_too() -> None:
    assert attempted("map_shared(2)") == "done"
    assert attempted("map_shared(200)") == "OSError"


def test_limits_cannot_be_raised_again() -> None:
    code = "__import__('resource').setrlimit(__import__('resource').RLIMIT_DATA, (-1, -1))"
    assert attempted(code) in ("ValueError", "PermissionError")


def test_machines_without_a_table_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    assert sandbox.give_up_calls() == "no seccomp filter for vax"


def test_time_follows_the_size_with_a_least_and_a_most() -> None:
    assert sandbox.seconds_for(1, 1000, 10.0) == 2.0
    assert sandbox.seconds_for(200, 1000, 10.0) == 4.0
    assert sandbox.seconds_for(1000, 1000, 10.0) == 10.0


def test_memory_follows_the_estimate() -> None:
    assert sandbox.decoding_bytes(100_000_000, 5_000_000) == 125_000_000 + sandbox.SPARE_BYTES
