"""The service's ends of the fork server and of the decoder processes."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path

from app.decoders import frames
from app.decoders.frames import Broken, Exited, Fork, Forked, Frame, NotForked, Ready

START_WITHIN = 20.0
"""Seconds until the fork server has loaded the codecs; 0.3 on an idle machine."""

ANSWER_WITHIN = 5.0
"""Seconds until a process has been forked, and until the end of one has been reported."""

_ROOT = Path(__file__).parents[2]

_PROGRAM = f"""\
import sys
sys.path.append({str(_ROOT)!r})
from app.decoders.fork_server import run
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


class Decoder:
    """One decoder process, used by one image at a time."""

    def __init__(self, connection: socket.socket, pid: int, watch: int) -> None:
        self._connection = connection
        self._watch = watch
        self.pid = pid
        self.images = 0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit status, as waitpid(2) gives it."""

    async def receive(self) -> tuple[Frame, int | None]:
        """Its next frame; raises Broken when it has ended."""
        await _readable(self._connection)
        return frames.receive(self._connection)

    def send(self, frame: Frame, *descriptors: int) -> None:
        """Frames are few and small, and each waits for its answer: the socket has always room."""
        frames.send(self._connection, frame, descriptors)

    def kill(self) -> None:
        """End it at once; a caller that waits for its frame gets Broken."""
        if self._watch >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, signal.SIGKILL)

    def close(self) -> None:
        """Kill it, and let go of the connection; may be called again."""
        self.kill()
        if self._watch >= 0:
            os.close(self._watch)
            self._watch = -1
            self._connection.close()


class ForkServer:
    """Starts decoder processes, and learns how they ended."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._waiting: deque[asyncio.Future[Decoder]] = deque()
        self._connections: deque[socket.socket] = deque()
        self._decoders: dict[int, Decoder] = {}
        self.alive = True

    @classmethod
    async def start(cls, max_pixels: int, max_file: int) -> "ForkServer":
        """A fork server that has loaded the codecs; raises Gone where it cannot be had."""
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

    async def fork(self) -> tuple[Decoder, str]:
        """A new decoder, and what its kernel lacks for the sandbox; raises Gone."""
        if not self.alive:
            raise Gone("the fork server has ended")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        made: asyncio.Future[Decoder] = asyncio.get_running_loop().create_future()
        self._waiting.append(made)
        self._connections.append(ours)
        with theirs:
            try:
                frames.send(self._control, Fork(), [theirs.fileno()])
            except Broken as error:
                self._lost()
                raise Gone("the fork server has ended") from error
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

    async def close(self) -> None:
        """End it, and with it all decoders."""
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
        made, connection = self._waiting.popleft(), self._connections.popleft()
        if isinstance(frame, NotForked):
            connection.close()
            if not made.done():
                made.set_exception(Gone(f"no decoder can be started: {frame.reason}"))
            return
        assert isinstance(frame, Forked)
        assert descriptor is not None
        decoder = self._decoders[frame.pid] = Decoder(connection, frame.pid, descriptor)
        if made.done():  # whoever asked for it was cancelled
            decoder.close()
        else:
            made.set_result(decoder)

    def _lost(self) -> None:
        """The connection has closed, on either side."""
        if not self.alive:
            return
        self.alive = False
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        for connection in self._connections:
            connection.close()
        for made in self._waiting:
            if not made.done():
                made.set_exception(Gone("the fork server has ended"))
        for decoder in self._decoders.values():
            decoder.kill()
            if not decoder.ended.done():
                decoder.ended.set_result(signal.SIGKILL)
        self._decoders.clear()


def _abandon(made: asyncio.Future[Decoder]) -> None:
    """Close a decoder that came in the same turn of the loop in which its user was cancelled."""
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
    """Start the fork server with a safe path (`-P`): nothing is imported from where we stand."""
    numbers = (control.fileno(), max_pixels, max_file)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
        pass_fds=[control.fileno()],
        start_new_session=True,
    )
