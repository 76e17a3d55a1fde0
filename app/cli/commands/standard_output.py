"""Standard output: written at once, with errors that name it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from app.cli.commands.errors import CannotWrite


def show(output: bytes | str) -> None:
    """Write at once; BrokenPipeError where the reader has gone, CannotWrite on a full disk."""
    with _named_errors():
        sys.stdout.buffer.write(output.encode() if isinstance(output, str) else output)
        sys.stdout.buffer.flush()


def flush() -> None:
    """Write what `print` has left in the buffer, with the errors of `show`."""
    with _named_errors():
        sys.stdout.flush()


def discard() -> None:
    """Send to nowhere what could not be written, or Python would try once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite(f"standard output: {error.strerror}") from None
