"""Make the temporary folder in which the processes of one server share their metrics.

The folder is removed when the server ends, or, if the server was killed, when the next one starts.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.system.processes import is_alive

PREFIX = "darkroom-metrics"


@contextmanager
def metrics_folder(parent: Path | None = None) -> Iterator[str]:
    """Make a folder named after this process; remove folders of this user's servers that ended."""
    where = parent or Path(tempfile.gettempdir())
    for left in where.glob(f"{PREFIX}-*-*"):
        if left.is_dir() and left.stat().st_uid == os.getuid() and not _alive(left.name):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-{os.getpid()}-", dir=where) as folder:
        yield folder


def _alive(name: str) -> bool:
    """Return whether the process in the folder's name still runs, or the name has no number."""
    number = name.split("-")[2]
    return not number.isdecimal() or is_alive(int(number))
