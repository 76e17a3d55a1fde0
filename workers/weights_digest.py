"""The digests of weights files, and the errors for files that are missing or wrong."""

import hashlib
from pathlib import Path


class WeightsUnavailable(Exception):
    """The error for missing weights; its text gives the reason and says what to do."""


class WeightsCorrupt(WeightsUnavailable):
    """The error for a file that exists but is not the expected one."""

    def __init__(self, path: Path, expected: str, actual: str) -> None:
        super().__init__(
            f"{path} has sha256 {actual} instead of {expected}: it is damaged or another file. "
            "Replace it (`darkroom weights fetch` does so for published weights)"
        )
        self.path, self.expected, self.actual = path, expected, actual


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file (0.1 s for 46 MB); raise WeightsUnavailable if it is
    unreadable.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WeightsUnavailable(f"cannot read the weights {path}: {error.strerror}") from error


def verified_sha256(path: Path, expected: str | None) -> str:
    """Return the SHA-256 of a file; raise WeightsCorrupt unless it is `expected` (None allows
    any).
    """
    actual = file_sha256(path)
    if expected not in (None, actual):
        raise WeightsCorrupt(path, str(expected), actual)
    return actual
