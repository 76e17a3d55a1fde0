"""Start decoder processes, talk to each of them, and notice how each ended."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from app.decoders import frames
from app.decoders.frames import Begin, Broken, Closed, Exited, Fork, Forked, Frame, NotForked, Ready
from app.decoders.memory import SharedArea, new_area

log = logging.getLogger("darkroom.decoders")

Answer = tuple[Frame, int | None]
"""A frame, and the descriptor that came beside it, which the receiver closes."""


class DecoderProcess:
    """Handle of a decoder process, which serves one image at a time, and of its shared area."""

    def __init__(self, connection: socket.socket, pid: int, watch: int, area: SharedArea) -> None:
        self._connection = connection
        self._watch = watch
        self._waiting: asyncio.Future[Answer] | None = None
        self._listens = False
        self._broken = False
        self.pid = pid
        self.area = area
        self.images = 0
        self.closed = False
        """Whether the process closed the connection by its end; False if its answer was refused."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit status, as waitpid(2) gives it."""

    async def receive(self) -> Answer:
        """Return its next frame; raises Broken when it has ended, or sent one too many before."""
        if self._broken:
            raise Broken("the connection is closed")
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        if not self._listens:
            # By its number: asyncio formats the repr of a socket it does not know, in 0.04 ms.
            loop.add_reader(self._connection.fileno(), self._on_readable)
            self._listens = True
        waiting = self._waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            _close_descriptor_of(waiting)
            raise
        finally:
            self._waiting = None

    def send(self, frame: Frame, *descriptors: int) -> None:
        """Send a frame; the socket has room, as each is answered before the next is sent.

        Raises Broken where the process has ended.
        """
        if self._broken:
            raise Broken("the connection is closed")
        try:
            frames.send(self._connection, frame, descriptors)
        except Closed:
            self.closed = True
            raise

    def kill(self) -> None:
        """Kill the process; a caller that waits for its frame gets Broken."""
        if self._watch >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and close the connection; further calls have no effect."""
        self.kill()
        if self._watch >= 0:
            self._stop_listening()
            os.close(self._watch)
            self._watch = -1
            self._connection.close()

    def _on_readable(self) -> None:
        try:
            frame, descriptor = frames.receive(self._connection)
        except BlockingIOError:
            return
        except Broken as error:
            self._break(error)
            return
        if self._waiting is None or self._waiting.done():
            if descriptor is not None:
                os.close(descriptor)
            self._break(Broken("a frame that nothing asked for"))
            return
        self._waiting.set_result((frame, descriptor))

    def _break(self, error: Broken) -> None:
        self._broken = True
        self.closed = isinstance(error, Closed)
        self._stop_listening()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def _stop_listening(self) -> None:
        if self._listens:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            self._listens = False


def _close_descriptor_of(answer: asyncio.Future[Answer]) -> None:
    """Close a descriptor that came in the turn of the loop in which its receiver was cancelled."""
    if answer.done() and not answer.cancelled() and answer.exception() is None:
        _, descriptor = answer.result()
        if descriptor is not None:
            os.close(descriptor)


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


class Supply:
    """Supply of new processes: starts a fork server with the first process, and another fork server
    when that server has ended. `limits` are the pixels and the bytes of the largest file.
    """

    def __init__(self, limits: tuple[int, int]) -> None:
        self._limits = limits
        self._starting = asyncio.Lock()
        self._warned = False
        self.server: ForkServer | None = None

    async def fork(self) -> DecoderProcess:
        """Return a new process; raise Gone if none can be started."""
        async with self._starting:
            if self.server is None or not self.server.alive:
                await self.aclose()
                self.server = await ForkServer.start(*self._limits)
            server = self.server
        decoder, problem = await server.fork()
        if problem and not self._warned:
            self._warned = True
            log.warning("decoder processes run without a part of their sandbox: %s", problem)
        return decoder

    async def aclose(self) -> None:
        """End the fork server, and all processes with it."""
        server, self.server = self.server, None
        if server is not None:
            await server.close()
