"""The temporary folder in which the processes of one server add up their metrics.

It goes with the server. Of a server that was killed it stays until the next one starts.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "darkroom-metrics"


@contextmanager
def metrics_folder(parent: Path | None = None) -> Iterator[str]:
    """A new folder, named for this process; those of servers of ours that are gone are removed."""
    where = parent or Path(tempfile.gettempdir())
    for left in where.glob(f"{PREFIX}-*-*"):
        if left.is_dir() and left.stat().st_uid == os.getuid() and not _alive(left.name):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-{os.getpid()}-", dir=where) as folder:
        yield folder


def _alive(name: str) -> bool:
    """Whether the process in the folder's name still runs."""
    number = name.split("-")[2]
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError):
        return not number.isdecimal()
    except PermissionError:
        pass
    return True
