"""The service's end of the fork server, which starts decoder processes and reports their ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from app.decoders import frames
from app.decoders.area import SharedArea, new_area
from app.decoders.frames import Begin, Broken, Exited, Fork, Forked, NotForked, Ready
from app.decoders.process import DecoderProcess

START_WITHIN = 20.0
"""Seconds that the fork server may take to load the codecs; it takes 0.3 on an idle machine."""

ANSWER_WITHIN = 5.0
"""Seconds that the fork server may take to fork a process or to end."""

_ROOT = Path(__file__).parents[2]

_PROGRAM = f"""\
import sys
sys.path.insert(0, {str(_ROOT)!r})
import app, models, workers
sys.path.append(sys.path.pop(0))
from app.decoders.child.fork_server import run
run(*map(int, sys.argv[1:]))
"""

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # a process that forks has one thread
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # reuse the buffers of photos instead of faulting anew
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}


class Gone(Exception):
    """The process has ended, or cannot be started."""


@dataclass(frozen=True, slots=True)
class _Order:
    """An ordered process: our ends of its connection and of its area."""

    made: asyncio.Future[DecoderProcess]
    connection: socket.socket
    area: SharedArea


class ForkServer:
    """Handle of the fork server: starts decoder processes and notes how they ended."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._ordered: deque[_Order] = deque()
        self._decoders: dict[int, DecoderProcess] = {}
        self.alive = True

    @classmethod
    async def start(cls, max_pixels: int, max_file: int) -> "ForkServer":
        """Start a fork server and wait until it has loaded the codecs; raises Gone."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                process = await asyncio.to_thread(_launched, theirs, max_pixels, max_file)
        except OSError as error:
            ours.close()
            raise Gone(f"the fork server cannot be started: {error}") from error
        server = cls(process, ours)
        try:
            async with asyncio.timeout(START_WITHIN):
                await _readable(ours)
                frame, _ = frames.receive(ours)
        except (Broken, TimeoutError) as error:
            await server.close()
            raise Gone("the fork server ended while it started") from error
        except BaseException:
            await server.close()
            raise
        assert isinstance(frame, Ready)
        asyncio.get_running_loop().add_reader(ours, server._on_readable)
        return server

    async def fork(self) -> tuple[DecoderProcess, str]:
        """Return a new process, and which part of the sandbox the kernel lacks; raises Gone."""
        if not self.alive:
            raise Gone("the fork server has ended")
        made = self._order()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                decoder = await made
        except asyncio.CancelledError:
            _abandon(made)
            raise
        except TimeoutError as error:
            self._lost()
            raise Gone("the fork server does not answer") from error
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                frame, _ = await decoder.receive()
        except (Broken, TimeoutError) as error:
            decoder.close()
            raise Gone("a decoder ended while it started") from error
        except BaseException:
            decoder.close()
            raise
        assert isinstance(frame, Ready)
        return decoder, frame.problem

    def _order(self) -> asyncio.Future[DecoderProcess]:
        """Order a process and send its area, which waits in its connection; raises Gone."""
        try:
            area, memory = new_area()
        except OSError as error:
            raise Gone(f"no decoder can be started: {error.strerror}") from error
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        made: asyncio.Future[DecoderProcess] = asyncio.get_running_loop().create_future()
        self._ordered.append(_Order(made, ours, area))
        try:
            with theirs:
                frames.send(ours, Begin(), [memory])
                frames.send(self._control, Fork(), [theirs.fileno()])
        except Broken as error:
            self._lost()
            raise Gone("the fork server has ended") from error
        finally:
            os.close(memory)
        return made

    async def close(self) -> None:
        """End the fork server, and with it all its decoders."""
        self._lost()
        try:
            await asyncio.to_thread(self._process.wait, ANSWER_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _on_readable(self) -> None:
        try:
            frame, descriptor = frames.receive(self._control)
        except BlockingIOError:
            return
        except Broken:
            self._lost()
            return
        if isinstance(frame, Exited):
            decoder = self._decoders.pop(frame.pid, None)
            if decoder is not None and not decoder.ended.done():
                decoder.ended.set_result(frame.status)
            return
        order = self._ordered.popleft()
        made = order.made
        if isinstance(frame, NotForked):
            order.connection.close()
            if not made.done():
                made.set_exception(Gone(f"no decoder can be started: {frame.reason}"))
            return
        assert isinstance(frame, Forked)
        assert descriptor is not None
        decoder = DecoderProcess(order.connection, frame.pid, descriptor, order.area)
        self._decoders[frame.pid] = decoder
        if made.done():  # the request that asked for it was cancelled
            decoder.close()
        else:
            made.set_result(decoder)

    def _lost(self) -> None:
        """Give up all processes: the connection has closed on one side."""
        if not self.alive:
            return
        self.alive = False
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        for order in self._ordered:
            order.connection.close()
            if not order.made.done():
                order.made.set_exception(Gone("the fork server has ended"))
        for decoder in self._decoders.values():
            decoder.kill()
            if not decoder.ended.done():
                decoder.ended.set_result(signal.SIGKILL)
        self._decoders.clear()


def _abandon(made: asyncio.Future[DecoderProcess]) -> None:
    """Close a process that came in the same turn of the loop in which its user was cancelled."""
    if made.done() and not made.cancelled() and made.exception() is None:
        made.result().close()


async def _readable(connection: socket.socket) -> None:
    loop, descriptor = asyncio.get_running_loop(), connection.fileno()
    ready: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not ready.done():
            ready.set_result(None)

    # By its number: asyncio formats the repr of what it does not know yet, 0.04 ms for a socket.
    loop.add_reader(descriptor, on_readable)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def _launched(control: socket.socket, max_pixels: int, max_file: int) -> "subprocess.Popen[bytes]":
    """Start the fork server with `-P`: it imports nothing from the current folder."""
    numbers = (control.fileno(), max_pixels, max_file)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
        pass_fds=[control.fileno()],
        start_new_session=True,
    )
