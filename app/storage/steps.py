"""A generator that several threads may advance and close, one at a time."""

from collections.abc import Generator
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Steps(Generic[T]):
    """A generator that threads advance, one at a time, and that may be closed at any time."""

    def __init__(self, source: Generator[T, None, None]) -> None:
        self._source = source
        self._lock = Lock()

    def take(self, n: int) -> list[T]:
        """Return the next `n` items, or fewer at the end."""
        with self._lock:
            return [*islice(self._source, n)]

    def close(self) -> None:
        """End the generator."""
        with self._lock:
            self._source.close()
