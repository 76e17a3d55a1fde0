"""Messages of a process to its supervisor: that it can work, and regularly that it lives.

They come by a pipe, each on a line of its own: a JSON object of what the process measured, once it
can work, and empty lines as heartbeats. A process hangs if its event loop no longer beats: because
a signal has stopped it, a lock is never released, or a thread keeps Python's lock.
"""

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

from models.heartbeat import Heartbeat, hangs

MOST = 4096
"""Bytes of a message: a pipe passes on up to that many in one piece (pipe(7))."""

BEAT = 1.0
"""Seconds between two heartbeats, and between two looks at them."""

STOPPED = 10.0
"""Seconds of silence after which a process hangs that a signal has stopped."""

WORKING = 30.0
"""The same of one that can work. Its event loop is never busy for one of them; this has to hold on
a machine that is many times too slow."""

STARTING = 120.0
"""The same of one that is starting. Imports, and the driver of a GPU, keep Python's lock for up to
ten of them; the first heartbeat comes after some of that."""


class LifeSigns:
    """Reader of the messages that come by `descriptor`, which it closes.

    `on_ready` gets what the process measured. `on_hang` is called once if it hangs, with the
    seconds of its silence; never for a process that does not beat.
    """

    def __init__(
        self,
        pid: int,
        descriptor: int,
        on_ready: Callable[[dict[str, Any]], None],
        on_hang: Callable[[float], None],
        *,
        beats: bool,
    ) -> None:
        self._pid = pid
        self._descriptor = descriptor
        self._on_ready, self._on_hang = on_ready, on_hang
        self._patience = STARTING
        self._heart = Heartbeat(BEAT)
        self._read = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._receive)
        self._timer = self._loop.call_later(BEAT, self._look) if beats else None

    def close(self) -> None:
        """Read no more, and look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _receive(self) -> None:
        if not (found := os.read(self._descriptor, MOST)):
            self.close()
            return
        self._heart.beat()
        *messages, self._read = (self._read + found).split(b"\n")
        for message in filter(None, messages):
            self._patience = WORKING
            self._on_ready(json.loads(message))

    def _look(self) -> None:
        silence = self._heart.silence()
        if hangs(self._pid, silence, STOPPED, self._patience):
            self._on_hang(silence)
        else:
            self._timer = self._loop.call_later(BEAT, self._look)
