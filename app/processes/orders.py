"""Orders of the parent process on standard input, one JSON object on each line.

When the other end closes, the parent has gone, and this process ends at once. The kernel kills it
then if it cannot read that, because a signal has stopped it or a thread keeps Python's lock.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from typing import Any

from models.exit_codes import ExitCode

PIECE = 65536

_PR_SET_PDEATHSIG = 1


class Orders:
    """Reader of orders; `first` are those that the process was started with."""

    def __init__(self) -> None:
        self._buffer = b""
        self.first = self._next()
        _end_with_parent()
        self._signs: int | None = self.first.pop("ready", None)
        if self._signs is not None:
            os.set_inheritable(self._signs, False)
            os.set_blocking(self._signs, False)  # a parent that is stopped must not stop this one
        self._lock = threading.Lock()
        self._early: list[dict[str, Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def attach(self) -> None:
        """Pass further orders to the running event loop, and tell the parent that it works."""
        self._later: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        with self._lock:
            self._loop = asyncio.get_running_loop()
            for orders in self._early:
                self._later.put_nowait(orders)
        self._beating = asyncio.create_task(self._keep_beating())

    async def next(self) -> dict[str, Any]:
        """Wait for the next orders and return them."""
        return await self._later.get()

    def ready(self) -> None:
        """Tell the parent that this process can work, once."""
        self._tell(b"{}")

    async def _keep_beating(self) -> None:
        while "beat" in self.first:
            self._tell(b"")
            await asyncio.sleep(self.first["beat"])

    def _tell(self, message: bytes) -> None:
        if self._signs is not None:
            with contextlib.suppress(OSError):  # the parent has ended, or does not read
                os.write(self._signs, message + b"\n")

    def _read(self) -> None:
        while True:
            orders = self._next()
            with self._lock:
                if self._loop is None:
                    self._early.append(orders)
                    continue
            try:
                self._loop.call_soon_threadsafe(self._later.put_nowait, orders)
            except RuntimeError:  # the loop has ended, and the process is about to
                return

    def _next(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            piece = os.read(sys.stdin.fileno(), PIECE)
            if not piece:
                os._exit(ExitCode.ORPHANED)
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        orders: dict[str, Any] = json.loads(line)
        return orders


def _end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends (prctl(2)). Linux only.

    Call it when orders have come: a forked process had another parent before it was adopted.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
