"""Start decoder processes, and talk to each of them.

Each process has a connection of its own, over which the fork server reports how the process began
and ended. To close the connection kills the process.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from app.decoders import messages
from app.decoders.memory import SharedArea, new_area
from app.decoders.messages import MAX_PACKET, Broken, Exited, Frame, NotForked, Ready

START_WITHIN = 20.0
"""Seconds that a decoder may take to start, with its fork server, which takes 0.3 on an idle
machine.
"""

STILL = 1.5
"""Seconds in which a process that is asked for an image must use CPU time, or it is given up: the
process was stopped, or it hangs. A machine so busy that a process gets none is not known."""

END_WITHIN = 5.0
"""Seconds that the fork server may take to end."""

_ROOT = Path(__file__).parents[2]

_PROGRAM = f"""\
import sys
sys.path.insert(0, {str(_ROOT)!r})
import app, models, workers
sys.path.append(sys.path.pop(0))
from app.decoders.child import run
run(*map(int, sys.argv[1:]))
"""

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # a process that forks has one thread
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # reuse the buffers of photos instead of faulting anew
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}


class Gone(Exception):
    """The fork server or a decoder cannot be started."""


class DecoderProcess:
    """Handle of a decoder process, which serves one image at a time, and of its shared area."""

    def __init__(self, connection: socket.socket, area: SharedArea) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._packet: asyncio.Future[bytes] | None = None
        self._closed = False
        self._ticks = -1
        self.area = area
        self.pid = 0
        self.images = 0
        # For its whole life: `sock_recv` would add and remove a reader for each image, in 0.03 ms.
        self._loop.add_reader(connection.fileno(), self._on_readable)

    async def receive(self) -> Frame:
        """Return the next frame, which is Exited if the process has ended; raises Broken.

        The end of the fork server ends all its decoders by SIGKILL. A process that stands still
        counts as ended by SIGKILL, too.
        """
        self._packet, self._ticks = self._loop.create_future(), -1
        self._timer = self._loop.call_later(STILL, self._look)
        try:
            packet = await self._packet
        finally:
            self._timer.cancel()
        return messages.decode(packet) if packet else Exited(signal.SIGKILL)

    def send(self, frame: Frame) -> None:
        """Send a frame; the socket has room, as each is answered before the next is sent.

        Raises Broken where the process has ended.
        """
        try:
            self._connection.send(messages.encode(frame))
        except OSError as error:
            raise Broken("the process has ended") from error

    def close(self) -> None:
        """Close the connection, which kills the process; further calls have no effect."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()

    def _look(self) -> None:
        """Give the process up if it has used no CPU time since the last look; else look again.

        Not while it starts: then it waits for the fork server.
        """
        before, self._ticks = self._ticks, ticks(self.pid)
        still = bool(self.pid) and self._ticks == before
        if still and self._packet is not None and not self._packet.done():
            self._packet.set_result(b"")
        else:
            self._timer = self._loop.call_later(STILL, self._look)

    def _on_readable(self) -> None:
        try:
            packet = self._connection.recv(MAX_PACKET)
        except BlockingIOError:
            return
        except ConnectionError:
            packet = b""
        if self._packet is None or self._packet.done():
            self.close()  # it has ended, or sent a frame that nothing asked for
        else:
            self._packet.set_result(packet)


def ticks(pid: int) -> int:
    """Return the clock ticks of CPU time that a process has used (proc(5)); 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


class ForkServer:
    """Handle of the fork server, which starts decoder processes for images of these bounds."""

    def __init__(self, max_pixels: int, max_file: int) -> None:
        """Start the server; raises OSError. Decoders wait until it has loaded the codecs."""
        self._bounds = max_pixels, max_file
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self.process = _launched(theirs.fileno(), max_pixels, max_file)
        except BaseException:
            self._control.close()
            raise

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    async def fork(self) -> tuple[DecoderProcess, str]:
        """Return a new process, and which part of the sandbox the kernel lacks; raises Gone."""
        try:
            memory = new_area(*self._bounds)
            try:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.setblocking(False)
                decoder = DecoderProcess(ours, SharedArea(memory))
                with theirs:
                    socket.send_fds(self._control, [b"fork"], [theirs.fileno(), memory])
            finally:
                os.close(memory)
        except OSError as error:
            raise Gone(str(error.strerror)) from error
        try:
            async with asyncio.timeout(START_WITHIN):
                frame = await decoder.receive()
        except BaseException as error:
            decoder.close()
            if isinstance(error, Broken | TimeoutError):
                self.process.kill()
                raise Gone("the process did not start") from error
            raise
        if isinstance(frame, Ready):
            decoder.pid = frame.pid
            return decoder, frame.problem
        decoder.close()
        why = frame.reason if isinstance(frame, NotForked) else "the fork server has ended"
        raise Gone(why)

    async def close(self) -> None:
        """End the fork server, and with it all its decoders."""
        self._control.close()
        try:
            await asyncio.to_thread(self.process.wait, END_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


def _launched(control: int, max_pixels: int, max_file: int) -> "subprocess.Popen[bytes]":
    """Start the fork server with `-P`: it imports nothing from the current folder."""
    numbers = map(str, (control, max_pixels, max_file))
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, *numbers],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
        pass_fds=[control],
        start_new_session=True,
    )
