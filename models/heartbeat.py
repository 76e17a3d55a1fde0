"""Heartbeats: judge by its regular signs of life whether another process hangs.

Silence is counted in looks, each of which stands for the seconds between two. While this process
itself does not run, because the machine is suspended or overloaded, it does not look either; so a
delay of both is no silence of the watched process.
"""

from pathlib import Path

BEAT = 1.0
"""Seconds between two heartbeats of a supervised process, and between two looks at them."""


class Heartbeat:
    """The silence of a process at which another process looks every `look` seconds."""

    def __init__(self, look: float) -> None:
        self._look = look
        self._looks = 0

    def beat(self) -> None:
        """Note a sign of life."""
        self._looks = 0

    def silence(self) -> float:
        """Look once; return the seconds since the last sign of life, as far as looks cover them."""
        self._looks += 1
        return self._looks * self._look


def hangs(pid: int, silence: float, stopped: float, running: float) -> bool:
    """Return whether a process has been silent too long, for `running` seconds.

    `stopped` seconds are enough for a process that a signal has stopped, because no load explains
    that.
    """
    return silence >= running or (silence >= stopped and is_stopped(pid))


def is_stopped(pid: int) -> bool:
    """Return whether a signal such as SIGSTOP has stopped a process; a debugger does not count."""
    try:  # proc(5), stat: the state follows the name, which may contain anything
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):  # it has ended, or this system has no /proc
        return False
