"""Fork server: a process that has loaded the codecs and forks decoder processes from itself.

A new decoder takes some milliseconds instead of the third of a second that Python, numpy and Pillow
need to load. Forking is safe here, because the process has one thread and holds neither locks nor
requests; the service itself has many threads and cannot fork safely. The fork server ends when the
service closes the connection or dies, and its decoders end with it.
"""

import gc
import os
import selectors
import socket

from app.decoders import messages
from app.decoders.child import sandbox
from app.decoders.child.decoder import serve
from app.decoders.messages import Broken, Exited, Fork, Forked, NotForked, Ready
from models import codec


def run(descriptor: int, max_pixels: int, max_file: int) -> None:
    """Fork on request and report every end, until the connection closes."""
    control = socket.socket(fileno=descriptor)
    codec.warm_up()
    gc.collect()
    gc.freeze()  # so that collections in decoders do not copy the pages that all share
    _silence()
    _ForkServer(control, max_pixels, max_file).run()


class _ForkServer:
    def __init__(self, control: socket.socket, max_pixels: int, max_file: int) -> None:
        self._control = control
        self._limits = max_pixels, max_file
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self) -> None:
        messages.send(self._control, Ready())
        while True:
            for key, _ in self._selector.select():
                try:
                    if key.data is None:
                        self._fork()
                    else:
                        self._reap(key.fd, key.data)
                except Broken:
                    return

    def _fork(self) -> None:
        order, connection = messages.receive(self._control)
        assert isinstance(order, Fork)
        assert connection is not None
        parent = os.getpid()
        try:
            pid = os.fork()
            if not pid:
                self._become_decoder(connection.number, parent)
            # A pidfd always means this process; its number may be given to another one once it has
            # been reaped.
            watch = os.pidfd_open(pid)
        except OSError as error:
            messages.send(self._control, NotForked(str(error.strerror)))
            return
        self._selector.register(watch, selectors.EVENT_READ, pid)
        messages.send(self._control, Forked(pid), watch)

    def _become_decoder(self, connection: int, parent: int) -> None:
        """Become a decoder in the new process; never return."""
        code = 1
        try:
            sandbox.end_with(parent)
            for key in [*self._selector.get_map().values()]:
                os.close(key.fd)  # the service's connection and the other decoders' pidfds
            self._selector.close()
            serve(socket.socket(fileno=connection), *self._limits)
            code = 0
        except Broken:
            code = 0
        finally:
            os._exit(code)

    def _reap(self, watch: int, pid: int) -> None:
        self._selector.unregister(watch)
        os.close(watch)
        _, status = os.waitpid(pid, 0)
        messages.send(self._control, Exited(pid, status))


def _silence() -> None:
    """Discard messages that libraries write to descriptor 2 about a file; they would spoil the JSON
    log.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
