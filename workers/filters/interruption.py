"""End long filters of images whose deadline has passed: nothing waits for the result.

A filter that takes seconds calls `stop_if_late` now and then. Without that, an image whose client
gave it 0.2 s kept the device for half a minute, and all images behind it waited.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from models.domain.deadline import NEVER, Deadline
from models.domain.errors import DeadlineExceeded

_deadline: ContextVar[Deadline] = ContextVar("deadline", default=NEVER)


@contextmanager
def ending_at(deadline: Deadline) -> Iterator[None]:
    """Let `stop_if_late` in the block, on this thread, refer to this deadline."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def stop_if_late() -> None:
    """Raise DeadlineExceeded if the deadline of the image that is filtered here has passed."""
    if _deadline.get().expired(monotonic()):
        raise DeadlineExceeded("the deadline passed while the image was computed")
