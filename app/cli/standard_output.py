"""Standard output: written immediately, with errors that name it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from app.bulk.errors import CannotWrite


def show(output: bytes | str) -> None:
    """Write immediately; BrokenPipeError if the reader has closed, CannotWrite on a full disk."""
    with _named_errors():
        sys.stdout.buffer.write(output.encode() if isinstance(output, str) else output)
        sys.stdout.buffer.flush()


def flush() -> None:
    """Write the content that `print` has left in the buffer, with the errors of `show`."""
    with _named_errors():
        sys.stdout.flush()


def discard() -> None:
    """Drop the content that could not be written; Python would try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite.of("standard output", error) from None
