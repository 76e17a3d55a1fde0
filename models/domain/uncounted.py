"""Mark the work that a server does for itself, canaries and the warm-up: metrics leave it out."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_OWN_WORK: ContextVar[bool] = ContextVar("own_work", default=False)


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave work that begins in the block, also in its tasks, out of metrics, logs and lists."""
    token = _OWN_WORK.set(True)
    try:
        yield
    finally:
        _OWN_WORK.reset(token)


def counts() -> bool:
    """Return whether the present work counts: it is not begun by the server for itself."""
    return not _OWN_WORK.get()
