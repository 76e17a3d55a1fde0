"""Locks between the processes of this host: one works, the others wait.

A lock is a file that is locked by flock(2). The kernel frees it with its process, however that
ends.
"""

import contextlib
import fcntl
import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

log = logging.getLogger("darkroom.lock")

PATIENCE = 120.0
"""Seconds to wait for another process: three times what compiling all kernels takes."""

_PAUSE = 0.1
"""Seconds between two tries to take the lock."""


@contextlib.contextmanager
def host_lock(folders: Sequence[Path], name: str, work: str) -> Iterator[None]:
    """Wait until no other process of this host holds the lock `name`; `work` says what it does.

    The file is in the first of the folders that can be written. Without such a folder, or on a file
    system without locks, there is no wait. A process that holds the lock for `PATIENCE` seconds may
    be stopped: then this one goes on as well. So the work must not be harmed by being done twice.
    """
    for folder in folders:
        with contextlib.ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((folder / name).open("ab"))
                _take(file, work)
            except OSError as error:
                log.debug("%s cannot be locked: %s", folder, error)
                continue
            yield
            return
    yield


def _take(file: IO[bytes], work: str) -> None:
    """Lock a file, or give up after `PATIENCE` seconds; raise OSError where there are no locks."""
    end = time.monotonic() + PATIENCE
    for tries in itertools.count():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if tries == 0:
                log.info("another process of this host %s; waiting for it", work)
            if time.monotonic() >= end:
                log.warning("another process %s for %s s; not waiting any longer", work, PATIENCE)
                return
            time.sleep(_PAUSE)
        else:
            return
