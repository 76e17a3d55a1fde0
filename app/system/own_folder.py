"""Temporary folders of a process, which go with it however it ends."""

import os
import shutil
import tempfile
from pathlib import Path

import psutil


def own_folder(prefix: str, parent: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Make a temporary folder that is named by `prefix` and the id of this process.

    Folders with the same prefix are removed that processes of this user left when they were killed.
    """
    where = parent or Path(tempfile.gettempdir())
    for left in where.glob(f"{prefix}-*-*"):
        number = left.name.removeprefix(f"{prefix}-").split("-")[0]
        ended = number.isdecimal() and not psutil.pid_exists(int(number))
        if ended and left.is_dir() and left.stat().st_uid == os.getuid():
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{prefix}-{os.getpid()}-", dir=where)
