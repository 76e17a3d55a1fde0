"""A fork server for the supervisor's tests, which forks `tests.supervised_child`.

Named `slow`, it imports for a minute.
"""

import sys
import time

from app.processes.fork_server import serve
from tests import supervised_child

_BROKEN = sys.argv[1] == "broken"


def main() -> int:
    """Be a supervised child in each forked process, or end at once as one that cannot work."""
    if not _BROKEN:
        supervised_child.main()
    return 1


if __name__ == "__main__":
    if sys.argv[1] == "slow":
        time.sleep(60)
    sys.exit(serve(main))
