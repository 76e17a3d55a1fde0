"""Append to a file on a thread, so that a slow disk does not hold up those who make the records."""

import os
import threading
import time
from typing import BinaryIO

SYNC = 1.0
"""Seconds after which appended bytes are forced to the disk: a power failure costs little more."""

MOST_WAITING = 64 << 20
"""Bytes that may wait for the disk; `add` waits for room beyond that."""


class Appender:
    """Appends to `file`, which is unbuffered: what was written survives the end of this process.

    An error of the disk is raised by the next call, as OSError, and ends all writing. The thread
    starts with the first bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._bytes = 0
        """The bytes that wait, and those that are being written."""
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        self._synced = time.monotonic()

    def add(self, data: bytes) -> None:
        """Append bytes later; wait first if too many wait already. Raises OSError."""
        with self._changed:
            while self._bytes > MOST_WAITING and self._error is None:
                self._changed.wait()
            self._raise()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="records", daemon=True)
                self._thread.start()
            self._waiting.append(data)
            self._bytes += len(data)
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until all bytes are written, and end the thread; the file stays open.

        Raises OSError.
        """
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while data := self._next():
            try:
                self._write(data)
            except OSError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._bytes -= len(data)
                self._changed.notify_all()

    def _next(self) -> bytes:
        """Return all bytes that wait, or none at the end."""
        with self._changed:
            while not self._waiting and not self._ended:
                self._changed.wait()
            waiting, self._waiting = self._waiting, []
        return b"".join(waiting)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # unbuffered, so a call may write less
            rest = rest[self._file.write(rest) :]
        if time.monotonic() - self._synced > SYNC:
            os.fdatasync(self._file.fileno())
            self._synced = time.monotonic()
