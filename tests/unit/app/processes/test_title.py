"""The name under which a process is listed."""

import subprocess
import sys
from pathlib import Path

from tests.server import PATIENCE

PROGRAM = """
import sys
from app.processes.title import retitle
retitle({sys.argv[-2]: sys.argv[1], sys.argv[-1]: sys.argv[2]})
print(open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))[-2:], sys.argv[-2:])
"""
SPARE = ["app.processes.standby", "worker 0 of GPU 1"]


def listed(*after: str) -> str:
    command = [sys.executable, "-c", PROGRAM, *after, *SPARE]
    root = Path(__file__).parents[4]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=root)
    return done.stdout.strip() or done.stderr


def test_a_process_is_listed_under_its_new_module_and_name() -> None:
    now = ["app.processes.member", "worker 1 of GPU 1"]
    assert listed(*now) == f"{now} {SPARE}"


def test_a_name_may_take_the_place_that_a_shorter_module_leaves() -> None:
    now = ["app.processes.member", "worker 10 of GPU 1"]
    assert listed(*now) == f"{now} {SPARE}"


def test_names_that_are_too_long_change_nothing() -> None:
    assert listed("app.a_much_longer_name", "worker 10 of GPU 1") == f"{SPARE} {SPARE}"
