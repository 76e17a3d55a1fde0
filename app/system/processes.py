"""Find out whether another process still runs."""

import os


def is_alive(pid: int) -> bool:
    """Return whether a process with this number exists, of any user; a zombie counts as alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return True
