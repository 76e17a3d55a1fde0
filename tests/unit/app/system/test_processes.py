"""Whether a process still runs."""

import os
import subprocess
import sys

from app.system.process_family import is_alive


def test_a_process_is_alive_until_its_end_was_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(child.pid)
    child.communicate(b"\n")
    assert not is_alive(child.pid)
    assert is_alive(os.getpid())
