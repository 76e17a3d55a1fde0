"""The texts of the errors that end a command."""

import errno
import os

import pytest

from app.bulk.errors import CannotWrite


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "out: No space left on device; free some space there, or choose another"),
        (errno.EACCES, "out: Permission denied; choose a place that this user may write to"),
        (errno.ENOENT, "out: No such file or directory; make the folder first"),
        (errno.EROFS, "out: Read-only file system"),
    ],
)
def test_an_error_of_writing_says_what_to_do(number: int, text: str) -> None:
    assert str(CannotWrite.of("out", OSError(number, os.strerror(number)))).startswith(text)


def test_an_error_without_a_number_has_its_own_words() -> None:
    assert str(CannotWrite.of("out", RuntimeError("a loop of links"))) == "out: a loop of links"
