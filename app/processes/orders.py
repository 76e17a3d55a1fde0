"""Orders of the parent process on standard input, one JSON object on each line.

When the other end closes, the parent has gone, and this process ends at once. The kernel kills it
too when its parent ends: it may be starting, a signal may have stopped it, or a thread may keep
Python's lock. Signs of life go back on standard input, which is a socket then.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any

from models.exit_codes import ExitCode
from models.heartbeat import BEAT

PIECE = 65536

_PR_SET_PDEATHSIG = 1


class Orders:
    """Reader of orders; `first` are the orders that the process was started with."""

    def __init__(self) -> None:
        self._channel, self._buffer = sys.stdin.fileno(), b""
        self._orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        while self._orders.empty():
            self._receive()
        self.first = self._orders.get_nowait()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.set_blocking(self._channel, False)  # a parent that is stopped must not stop this one

    def attach(self) -> None:
        """Read further orders in the running event loop, and tell the parent that it works."""
        asyncio.get_running_loop().add_reader(self._channel, self._receive)
        self._beating = asyncio.create_task(self._keep_beating())

    async def next(self) -> dict[str, Any]:
        """Wait for the next orders and return them."""
        return await self._orders.get()

    def ready(self) -> None:
        """Tell the parent that this process can work, once."""
        self._tell(b"{}\n")

    async def _keep_beating(self) -> None:
        while True:
            self._tell(b"\n")
            await asyncio.sleep(BEAT)

    def _tell(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent has ended, or does not read
            os.write(self._channel, message)

    def _receive(self) -> None:
        piece = os.read(self._channel, PIECE)
        if not piece:
            os._exit(ExitCode.ORPHANED)
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        for line in lines:
            self._orders.put_nowait(json.loads(line))
