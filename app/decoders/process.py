"""Handle of one decoder process: its connection, its shared area and its exit status."""

import asyncio
import contextlib
import os
import signal
import socket

from app.decoders import frames
from app.decoders.area import SharedArea
from app.decoders.frames import Broken, Closed, Frame

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
        self.idle_since = 0.0
        """Since when it has no image, on the event loop's clock."""
        self.looks, self.patience = 0, 0.0
        """How often the watchdog has looked at its image, and the seconds until it is stuck."""
        self.stuck = False
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
