"""The errors that end a command before its work is done."""

import errno
from typing import Self

REMEDIES = {
    errno.ENOSPC: "free some space there, or choose another place",
    errno.EDQUOT: "free some space there, or choose another place",
    errno.EACCES: "choose a place that this user may write to",
    errno.ENOENT: "make the folder first",
}
"""What a user can do about errors of writing, by error number."""


def exists(file: object) -> str:
    """Return the words about a file that is not replaced."""
    return f"{file} exists already; choose another name, or add --force to replace it"


class WrongUsage(Exception):
    """The arguments can never work; the text names the argument and the remedy."""


class CannotWrite(Exception):
    """Results cannot be written; the text names the place and the reason."""

    @classmethod
    def of(cls, place: object, error: Exception) -> Self:
        """Return the error for writing to `place`; the text has the remedy where it is known."""
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
        return cls("; ".join([f"{place}: {reason}", *([remedy] if remedy else [])]))


class EngineLost(Exception):
    """The server of the images has ended; the text says how to go on."""
