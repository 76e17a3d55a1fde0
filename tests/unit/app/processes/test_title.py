"""The name under which a process is listed."""

import subprocess
import sys
from pathlib import Path

from tests.server import PATIENCE

PROGRAM = """
import sys
from app.processes.title import retitle
retitle("app.processes.standby", sys.argv[1])
print(open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0))[-1:], sys.argv[-1])
"""


def listed(after: str) -> str:
    command = [sys.executable, "-c", PROGRAM, after, "app.processes.standby"]
    root = Path(__file__).parents[4]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=root)
    return done.stdout.strip() or done.stderr


def test_a_process_is_listed_under_its_new_name() -> None:
    assert listed("app.processes.member") == "['app.processes.member'] app.processes.standby"


def test_a_name_that_is_too_long_changes_nothing() -> None:
    assert listed("app.a_much_longer_name") == "['app.processes.standby'] app.processes.standby"
