"""Orders of the parent process on standard input: a line of JSON at the start, then one to leave.

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

from models.exit_codes import ExitCode
from models.heartbeat import BEAT

_PR_SET_PDEATHSIG = 1


class Orders:
    """Reader of orders; `given` are the orders that the process was started with.

    `leave` is set by the order to take nothing new, to finish the accepted work, and to end.
    """

    def __init__(self) -> None:
        line = sys.stdin.readline()
        if not line.endswith("\n"):
            sys.exit(ExitCode.ORPHANED)
        self.given = json.loads(line)
        self.leave = asyncio.Event()
        self._channel = sys.stdin.fileno()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.set_blocking(self._channel, False)  # a parent that is stopped must not stop this one

    def attach(self) -> None:
        """Read further orders in the running event loop, and tell the parent that it works."""
        asyncio.get_running_loop().add_reader(self._channel, self._receive)
        self._beating = asyncio.create_task(self._keep_beating())

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
        if not os.read(self._channel, 64):
            os._exit(ExitCode.ORPHANED)
        self.leave.set()
