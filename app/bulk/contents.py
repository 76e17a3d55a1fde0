"""The contents of sources: checked before anything is started, read in turn."""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from app.bulk.report import readable
from models.domain.errors import MalformedRequest, ServiceError

STANDARD_INPUT = "-"

SCHEMES = ("s3://", "gs://", "az://")
"""Beginnings of the addresses of objects in buckets."""

OWN = ("/dev/", "/proc/")
"""Beginnings of names that another process understands in another way, as `/dev/fd/3`."""

Content = bytes | str | ServiceError
"""The bytes of an image, a URL that the server fetches, or the error of a file without access."""


def content(name: str, load: Callable[[], bytes] | None = None) -> Content:
    """Return the content of an image, which `load` reads if it is a member of an archive."""
    if is_fetched(name):
        return readable(name)
    try:
        if load is not None:
            return load()
        if name == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        with open(name, "rb", buffering=0) as file:  # a buffer costs more than the system calls
            return file.read()
    except ServiceError as error:
        return error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        return MalformedRequest(f"cannot read {name}: {reason}")


def is_own(name: str) -> bool:
    """Return whether only this process can read a source: standard input, an open descriptor."""
    return name == STANDARD_INPUT or name.startswith(OWN)


def is_url(name: str) -> bool:
    """Return whether a source is at a URL; the fetch decides whether the URL is allowed."""
    return name.startswith(("http://", "https://"))


def is_address(name: str) -> bool:
    """Return whether a source is in a bucket."""
    return name.startswith(SCHEMES)


def is_fetched(name: str) -> bool:
    """Return whether a source is at a URL or in a bucket, and so no local file."""
    return is_url(name) or is_address(name)


def problem(name: str) -> str | None:
    """Return why an argument that stands for a single image can never be read, or None."""
    if is_fetched(name) or name == STANDARD_INPUT:
        return None
    try:
        if stat.S_ISREG(Path(name).stat().st_mode):
            Path(name).open("rb").close()
        elif not os.access(name, os.R_OK):  # opening a pipe may wait, and reading takes from it
            return os.strerror(13)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        return getattr(error, "strerror", None) or str(error)
    return None
