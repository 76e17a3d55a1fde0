"""Fork server: a process that has loaded the codecs and forks decoder processes from itself.

A new decoder takes some milliseconds instead of the third of a second that Python, numpy and Pillow
need to load. Forking is safe here, because the process has one thread and holds neither locks nor
requests; the service itself has many threads and cannot fork safely. The fork server ends when the
service closes the connection or dies, and its decoders end with it.
"""

import contextlib
import gc
import os
import select
import signal
import socket

from app.decoders import messages
from app.decoders.child import sandbox
from app.decoders.child.decoder import serve
from app.decoders.memory import SharedArea
from app.decoders.messages import Exited, Frame, NotForked
from models import codec


def run(descriptor: int, max_pixels: int, max_file: int) -> None:
    """Fork on request and report every end, until the connection closes."""
    codec.warm_up()
    gc.collect()
    gc.freeze()  # so that collections in decoders do not copy the pages that all share
    _silence()
    _ForkServer(descriptor, max_pixels, max_file).run()


class _ForkServer:
    """Server of orders on a connection; an order has a decoder's connection and its area."""

    def __init__(self, control: int, max_pixels: int, max_file: int) -> None:
        self._control = socket.socket(fileno=control)
        self._limits = max_pixels, max_file
        self._poll = select.epoll()
        self._poll.register(control, select.EPOLLIN)
        self._ends: dict[int, tuple[int, socket.socket]] = {}
        """The process id and the connection of each decoder, by the pidfd of the decoder."""
        self._hung_up: dict[int, int] = {}
        """The process id of each decoder, by its connection, which closes to kill the decoder."""

    def run(self) -> None:
        while True:
            # A second event could be of a descriptor whose number was given away meanwhile.
            ((descriptor, _),) = self._poll.poll(maxevents=1)
            if descriptor in self._ends:
                self._reap(descriptor)
            elif descriptor in self._hung_up:
                # The process is not reaped yet, so its number is not given to another process.
                os.kill(self._hung_up.pop(descriptor), signal.SIGKILL)
                self._poll.unregister(descriptor)
            elif not self._fork():
                return

    def _fork(self) -> bool:
        """Start a decoder; return False where the service has closed the connection."""
        order, descriptors, _, _ = socket.recv_fds(self._control, 16, 2)
        if not order:
            return False
        theirs, memory = descriptors
        connection = socket.socket(fileno=theirs)
        parent = os.getpid()
        try:
            pid = os.fork()
            if not pid:
                self._become_decoder(connection, memory, parent)
            watch = os.pidfd_open(pid)
        except OSError as error:
            _tell(connection, NotForked(str(error.strerror)))
            connection.close()
        else:
            self._ends[watch] = pid, connection
            self._hung_up[theirs] = pid
            self._poll.register(watch, select.EPOLLIN)
            self._poll.register(theirs, 0)  # hanging up is always reported
        os.close(memory)
        return True

    def _become_decoder(self, connection: socket.socket, memory: int, parent: int) -> None:
        """Become a decoder in the new process; never return."""
        code = 1
        try:
            sandbox.end_with(parent)
            self._control.close()
            self._poll.close()
            for watch, (_, other) in self._ends.items():
                os.close(watch)
                other.close()
            area = SharedArea(memory)
            os.close(memory)
            serve(connection, area, *self._limits)
            code = 0
        finally:
            os._exit(code)

    def _reap(self, watch: int) -> None:
        pid, connection = self._ends.pop(watch)
        os.close(watch)
        _, status = os.waitpid(pid, 0)
        self._hung_up.pop(connection.fileno(), None)
        _tell(connection, Exited(status))
        connection.close()


def _tell(connection: socket.socket, frame: Frame) -> None:
    """Send a frame, unless the service has closed the connection or the decoder has filled it."""
    with contextlib.suppress(OSError):
        connection.send(messages.encode(frame), socket.MSG_DONTWAIT)


def _silence() -> None:
    """Discard messages that libraries write to descriptor 2 about a file; they would spoil the JSON
    log.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
