"""Run inside the fork server and the decoder processes.

The fork server has loaded the codecs and forks decoder processes from itself, in some milliseconds
in place of the third of a second that Python, numpy and Pillow need to load. Forking is safe here,
because the process has one thread and holds neither locks nor requests; the service has many
threads. The fork server ends when the service closes the connection or dies, and its decoders end
with it.

A decoder serves one image after the other until the service hangs up: for a DecodeTask with a file
it sends Pixels, or Seen for an image beyond the bounds of the task. ImageFailed answers a file that
has an error.
"""

import contextlib
import gc
import math
import os
import select
import signal
import socket

from app.decoders import messages, sandbox
from app.decoders.memory import KEPT, LARGE_FILE, SMALL, SharedArea, opening_bytes, release
from app.decoders.messages import (
    MAX_PACKET,
    DecodeTask,
    Described,
    Encode,
    Encoded,
    Exited,
    Frame,
    ImageFailed,
    Pixels,
    Ready,
    Seen,
    Wanted,
)
from models import codec
from models.domain.errors import ServiceError, Undecodable, Unprocessable
from models.domain.image import Image
from models.malloc import return_freed_memory

MAX_DETAIL = 1000
"""Characters of an error text that are sent."""

_NO_ROOM = Undecodable(
    "decoding the image takes more memory than an image of its width and height may; "
    "save it anew as a plain JPEG or PNG"
)
_NO_ROOM_TO_ENCODE = Unprocessable(
    "encoding the image as asked takes more memory than is allowed; ask for another format"
)


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
            _tell(connection, Ready(0, str(error.strerror)))
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
            _Decoder(connection, area).run(*self._limits)
            code = 0
        finally:
            os._exit(code)

    def _reap(self, watch: int) -> None:
        pid, connection = self._ends.pop(watch)
        # Closing is not enough: a decoder that was forked just now may hold copies.
        self._poll.unregister(watch)
        if self._hung_up.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection)
        os.close(watch)
        _, status = os.waitpid(pid, 0)
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


class _Decoder:
    """Decoder of one image after the other, until the connection closes."""

    def __init__(self, connection: socket.socket, area: SharedArea) -> None:
        self._connection = connection
        self._area = area
        self._allowance = sandbox.Allowance()
        self._took_much = False
        """Whether the present image leaves freed memory behind that other processes need."""
        self._spent = False
        """Whether the memory of the process is used up, so that the process should end."""

    def run(self, max_pixels: int, max_file: int) -> None:
        """Lock the process in, then do what the service asks for."""
        problem = sandbox.enter(max_pixels, max_file)
        self._send(Ready(os.getpid(), problem))
        while not self._spent:
            packet, _, _, _ = self._connection.recvmsg(MAX_PACKET)
            if not packet:
                return
            task = messages.decode(packet)
            self._allowance.begin()
            if isinstance(task, DecodeTask):
                self._decode(task)
            else:
                assert isinstance(task, Encode)
                self._encode(task)
            self._allowance.end()
            if self._took_much:
                return_freed_memory()  # of which glibc keeps up to 64 MB

    def _send(self, frame: Frame) -> None:
        # sendmsg(2), because the sandbox refuses sendto(2), which `send` calls.
        self._connection.sendmsg([messages.encode(frame)])

    def _decode(self, task: DecodeTask) -> None:
        self._took_much = task.size >= LARGE_FILE
        seconds = min(task.seconds, sandbox.MIN_SECONDS)
        opening = opening_bytes(task.size)
        self._allowance.grant(opening, seconds)
        try:
            data = self._area.contents(task.size)
            if more := codec.open_memory(data):  # at most what decoding it may take later
                most = sandbox.BYTES_PER_PIXEL * task.max_pixels
                self._allowance.grant(opening + min(more, most), seconds)
            frames = task.wanted is Wanted.FRAMES
            opened = codec.open_file(data, max_pixels=task.max_pixels, all_frames=frames)
            info = opened.info
            if task.wanted is Wanted.DESCRIPTION:
                self._send(Described(opened.describe()))
                return
            if not task.bounds.allow(info, opened.memory, opened.cost):
                self._send(Seen(info, opened.cost, opened.memory))
                return
            self._took_much |= opened.memory > SMALL
            seconds = sandbox.seconds_for(info.n_pixels, task.max_pixels, task.seconds)
            self._allowance.grant(sandbox.decoding_bytes(opened.memory, task.size), seconds)
            if task.wanted in (Wanted.COLOUR, Wanted.APPEARANCE):
                wanted = {task.wanted.value: True}
                self._send(Described(opened.describe(**wanted)))
                return
            found = opened.decode(
                writable=False,
                # in the area, in place of the file and of the array before
                new_pixels=lambda shape: self._area.view(math.prod(shape)).reshape(shape),
            )
            assert isinstance(found.image, Image)
            (height, width, channels), exif = found.image.pixels.shape, found.exif
            self._area.put(found.image.pixels, exif or b"")
            n = None if exif is None else len(exif)
            shape = height, width, channels
            self._send(Pixels(found.info, shape, found.copyright, n, found.animation))
        except (ServiceError, MemoryError) as error:
            # No second name for the error: a cycle with this frame would keep the file alive.
            self._fail(error)

    def _encode(self, task: Encode) -> None:
        height, width, _ = task.shape
        size = math.prod(task.shape)
        self._took_much = size > KEPT
        bytes_ = opening_bytes(task.exif or 0)
        bytes_ += sandbox.ENCODED_BYTES_PER_PIXEL * height * width
        self._allowance.grant(bytes_, task.seconds)
        try:
            data = self._area.view(size + (task.exif or 0))
            made, quality = codec.encode_within(
                Image(data[:size].reshape(task.shape)),
                task.format,
                task.encoding,
                copyright=task.copyright,
                exif=None if task.exif is None else data[size:].tobytes(),
                taken=release if self._took_much else lambda _rows: None,
                animation=task.animation,
            )
            self._area.put(made)
            self._send(Encoded(len(made), quality))
        except (ServiceError, MemoryError, OSError, RuntimeError, ValueError) as error:
            self._fail(error, _NO_ROOM_TO_ENCODE)  # encoders report a lack of memory in many ways

    def _fail(self, error: Exception, no_room: ServiceError = _NO_ROOM) -> None:
        """Send the image's error."""
        self._area.put()  # the pixels up to the error
        short = isinstance(error.__cause__, MemoryError) or not isinstance(error, ServiceError)
        if isinstance(error, ServiceError) and not short:
            self._send(ImageFailed(error.code, error.detail[:MAX_DETAIL]))
            return
        self._send(ImageFailed(no_room.code, no_room.detail, last=True))
        self._spent = True
