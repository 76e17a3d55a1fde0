"""Start decoder processes, talk to each of them, and notice how each ended."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import NamedTuple

from app.decoders import messages
from app.decoders.memory import SharedArea, new_area
from app.decoders.messages import (
    Begin,
    Broken,
    Closed,
    Descriptor,
    Exited,
    Fork,
    Forked,
    Frame,
    NotForked,
    Ready,
)

Answer = tuple[Frame, Descriptor | None]
"""A frame, and the descriptor that came beside it."""

STILL = 1.5
"""Seconds in which a process that is asked for an image must use CPU time, or it is killed: a
process that was stopped, or that hangs. A machine so busy that a process gets none is not known."""

START_WITHIN = 20.0
"""Seconds that the fork server may take to load the codecs; it takes 0.3 on an idle machine."""

ANSWER_WITHIN = 5.0
"""Seconds that the fork server may take to fork a process or to end."""


class DecoderProcess:
    """Handle of a decoder process, which serves one image at a time, and of its shared area."""

    def __init__(
        self, connection: socket.socket, pid: int, watch: Descriptor, area: SharedArea
    ) -> None:
        self._connection = connection
        self._watch: Descriptor | None = watch
        self._waiting: asyncio.Future[Answer] | None = None
        self._listens = False
        self._broken = False
        self._ticks = -1
        self.pid = pid
        self.area = area
        self.images = 0
        self.closed = False
        """Whether the process closed the connection by its end; False if its answer was refused."""
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Its exit status, as waitpid(2) gives it."""

    async def receive(self) -> Answer:
        """Return its next frame; raises Broken when it has ended, or sent one too many before.

        A process that uses no CPU time meanwhile is killed.
        """
        if self._broken:
            raise Broken("the connection is closed")
        loop = asyncio.get_running_loop()
        if not self._listens:
            # By its number: asyncio formats the repr of a socket it does not know, in 0.04 ms.
            loop.add_reader(self._connection.fileno(), self._on_readable)
            self._listens = True
        self._waiting = loop.create_future()
        self._ticks = -1
        self._timer = loop.call_later(STILL, self._look)
        try:
            return await self._waiting
        finally:
            self._timer.cancel()
            self._waiting = None

    def send(self, frame: Frame, *descriptors: int) -> None:
        """Send a frame; the socket has room, as each is answered before the next is sent.

        Raises Broken where the process has ended.
        """
        if self._broken:
            raise Broken("the connection is closed")
        try:
            messages.send(self._connection, frame, *descriptors)
        except Closed:
            self.closed = True
            raise

    def kill(self) -> None:
        """Kill the process; a caller that waits for its frame gets Broken."""
        if self._watch is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch.number, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and close the connection; further calls have no effect."""
        self.kill()
        if self._watch is not None:
            self._stop_listening()
            self._watch = None
            self._connection.close()

    def _look(self) -> None:
        """Kill the process if it has used no CPU time since the last look; else look again."""
        before, self._ticks = self._ticks, ticks(self.pid)
        if self._ticks == before:
            self.kill()
        else:
            self._timer = asyncio.get_running_loop().call_later(STILL, self._look)

    def _on_readable(self) -> None:
        try:
            answer = messages.receive(self._connection)
        except BlockingIOError:
            return
        except Broken as error:
            self._break(error)
            return
        if self._waiting is None or self._waiting.done():
            self._break(Broken("a frame that nothing asked for"))
        else:
            self._waiting.set_result(answer)

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


def ticks(pid: int) -> int:
    """Return the clock ticks of CPU time that a process has used (proc(5)); 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


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


class _Order(NamedTuple):
    """An ordered process: our ends of its connection and of its area."""

    made: "asyncio.Future[DecoderProcess]"
    connection: socket.socket
    area: SharedArea


class ForkServer:
    """Handle of the fork server: starts decoder processes and notes how they ended."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ordered: deque[_Order] = deque()
        self._decoders: dict[int, DecoderProcess] = {}
        self.alive = True
        asyncio.get_running_loop().add_reader(control.fileno(), self._on_readable)

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
                await server._ready
        except (Gone, TimeoutError) as error:
            await server.close()
            raise Gone("the fork server ended while it started") from error
        except BaseException:
            await server.close()
            raise
        return server

    async def fork(self) -> tuple[DecoderProcess, str]:
        """Return a new process, and which part of the sandbox the kernel lacks; raises Gone."""
        made = self._order()
        decoder = None
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                decoder = await made
                frame, _ = await decoder.receive()
        except BaseException as error:
            if decoder is None and made.done() and not made.cancelled() and not made.exception():
                decoder = made.result()  # it came in the turn of the loop of the cancellation
            if decoder is not None:
                decoder.close()
            elif isinstance(error, TimeoutError):
                self._lost()
            if isinstance(error, Broken | TimeoutError):
                raise Gone("a decoder did not start") from error
            raise
        assert isinstance(frame, Ready)
        return decoder, frame.problem

    def _order(self) -> "asyncio.Future[DecoderProcess]":
        """Order a process and send its area, which waits in its connection; raises Gone."""
        try:
            area, memory = new_area()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise Gone(f"no decoder can be started: {error.strerror}") from error
        ours.setblocking(False)
        made: asyncio.Future[DecoderProcess] = asyncio.get_running_loop().create_future()
        self._ordered.append(_Order(made, ours, area))
        with theirs:
            messages.send(ours, Begin(), memory.number)
            try:
                messages.send(self._control, Fork(), theirs.fileno())
            except (Broken, OSError):
                self._lost()
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
            frame, watch = messages.receive(self._control)
        except BlockingIOError:
            return
        except Broken:
            self._lost()
            return
        if isinstance(frame, Ready):
            self._ready.set_result(None)
        elif isinstance(frame, Exited):
            _note_end(self._decoders.pop(frame.pid, None), frame.status)
        elif isinstance(frame, NotForked):
            _refuse(self._ordered.popleft(), f"no decoder can be started: {frame.reason}")
        else:
            assert isinstance(frame, Forked)
            assert watch is not None
            made, connection, area = self._ordered.popleft()
            decoder = DecoderProcess(connection, frame.pid, watch, area)
            self._decoders[frame.pid] = decoder
            if made.done():  # the request that asked for it was cancelled
                decoder.close()
            else:
                made.set_result(decoder)

    def _lost(self) -> None:
        """Give up all processes: the connection has closed on one side."""
        if self.alive:
            self.alive = False
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
        if not self._ready.done():
            self._ready.set_exception(Gone("the fork server has ended"))
            self._ready.exception()  # asyncio warns of errors that were never looked at
        while self._ordered:
            _refuse(self._ordered.popleft(), "the fork server has ended")
        for decoder in self._decoders.values():
            decoder.kill()
            _note_end(decoder, signal.SIGKILL)
        self._decoders.clear()


def _note_end(decoder: DecoderProcess | None, status: int) -> None:
    if decoder is not None and not decoder.ended.done():
        decoder.ended.set_result(status)


def _refuse(order: _Order, why: str) -> None:
    order.connection.close()
    if not order.made.done():
        order.made.set_exception(Gone(why))


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
