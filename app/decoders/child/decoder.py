"""Run inside a decoder process: decode one image after the other until the service hangs up.

The service sends a DecodeTask with a file, and gets Pixels, or Info about the header of an image
beyond the bounds of the task. ImageFailed answers a file that has an error.
"""

import math
import os
import socket

import numpy as np
from numpy.typing import NDArray

from app.decoders import messages
from app.decoders.child import sandbox
from app.decoders.memory import (
    AREA_SIZE,
    LARGE_FILE,
    SMALL,
    Mapping,
    NewPixels,
    SharedArea,
    memory_file,
    opening_bytes,
    release,
    return_freed_memory,
)
from app.decoders.messages import (
    Begin,
    Broken,
    DecodeTask,
    Described,
    Descriptor,
    Encode,
    Encoded,
    Frame,
    ImageFailed,
    Info,
    Pixels,
    Ready,
)
from models import codec
from models.codec import Decoded
from models.domain.errors import ServiceError, Undecodable, Unprocessable
from models.domain.image import Image

MAX_DETAIL = 1000
"""Characters of an error text that are sent."""

_NO_ROOM = Undecodable(
    "decoding the image takes more memory than an image of its width and height may; "
    "save it anew as a plain JPEG or PNG"
)
_NO_ROOM_TO_ENCODE = Unprocessable(
    "encoding the image as asked takes more memory than is allowed; ask for another format"
)


class OutOfMemory(Exception):
    """The image needed more memory than its size explains; the process should end afterwards."""


def serve(connection: socket.socket, max_pixels: int, max_file: int) -> None:
    """Map the shared area, lock the process in, then decode until the connection closes."""
    decoder = _Decoder(connection, _area(connection), sandbox.Allowance())
    problem = sandbox.enter(max_pixels, max_file)
    messages.send(connection, Ready(problem))
    decoder.run()


def _area(connection: socket.socket) -> SharedArea:
    begin, descriptor = messages.receive(connection)
    assert isinstance(begin, Begin)
    assert descriptor is not None
    return SharedArea(descriptor)


class _Decoder:
    def __init__(
        self, connection: socket.socket, area: SharedArea, allowance: sandbox.Allowance
    ) -> None:
        self._connection = connection
        self._area = area
        self._allowance = allowance
        self._file: Descriptor | None = None
        """The file of the present task, unless it is in the area; closed as soon as it was read."""
        self._took_much = False
        """Whether the present image leaves freed memory behind that other processes need."""

    def run(self) -> None:
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Do the next task; return False if the process is to end."""
        try:
            task, self._file = messages.receive(self._connection)
        except Broken:
            return False
        assert isinstance(task, DecodeTask | Encode)
        self._allowance.begin()
        try:
            if isinstance(task, DecodeTask):
                self._decode(task)
            else:
                self._encode(task)
        except OutOfMemory:
            return False
        finally:
            self._allowance.end()
        self._file = None
        if self._took_much:
            self._took_much = False
            return_freed_memory()
        return True

    def _decode(self, task: DecodeTask) -> None:
        self._took_much = task.size >= LARGE_FILE
        seconds = min(task.seconds, sandbox.MIN_SECONDS)
        opening = opening_bytes(task.size)
        self._allowance.grant(opening, seconds)
        try:
            data = self._contents(task.size)
            if more := codec.open_memory(data):  # at most what decoding it may take later
                most = sandbox.BYTES_PER_PIXEL * task.max_pixels
                self._allowance.grant(opening + min(more, most), seconds)
            opened = codec.open_file(data, max_pixels=task.max_pixels)
            info = opened.info
            if task.describe and not task.colour:
                messages.send(self._connection, Described(opened.describe(colour=False)))
                return
            if not task.bounds.allow(info, opened.memory, opened.cost):
                messages.send(self._connection, Info(info, opened.cost, opened.memory))
                return
            self._took_much |= opened.memory > SMALL
            seconds = sandbox.seconds_for(info.n_pixels, task.max_pixels, task.seconds)
            self._allowance.grant(sandbox.decoding_bytes(opened.memory, task.size), seconds)
            if task.describe:
                messages.send(self._connection, Described(opened.describe(colour=True)))
                return
            target = NewPixels()
            decoded = opened.decode(writable=False, new_pixels=target)
            self._send_pixels(decoded, target)
        except (ServiceError, MemoryError) as error:
            # No second name for the error: a cycle with this frame would keep the file alive.
            self._fail(error)

    def _encode(self, task: Encode) -> None:
        height, width, _ = task.shape
        self._took_much = math.prod(task.shape) > AREA_SIZE
        bytes_ = opening_bytes(task.exif or 0)
        bytes_ += sandbox.ENCODED_BYTES_PER_PIXEL * height * width
        self._allowance.grant(bytes_, task.seconds)
        try:
            made = self._encoded(task)
            answer = Encoded(len(made))
            if len(made) <= AREA_SIZE:
                self._send(answer, made)
                return
            memory = memory_file(made)
            del made  # before the service takes its copy
            messages.send(self._connection, answer, memory.number)
        except (ServiceError, MemoryError, OSError, RuntimeError, ValueError) as error:
            self._fail(error, _NO_ROOM_TO_ENCODE)  # encoders report a lack of memory in many ways

    def _encoded(self, task: Encode) -> bytes:
        """Return the file; the pixels are not needed any more afterwards."""
        size = math.prod(task.shape)
        data = self._mapped(size + (task.exif or 0))
        image = Image(np.frombuffer(data, np.uint8, size).reshape(task.shape))
        return codec.encode(
            image,
            task.format,
            task.encoding,
            copyright=task.copyright,
            exif=None if task.exif is None else bytes(data[size:]),
            taken=release if isinstance(data, np.ndarray) else lambda _rows: None,
        )

    def _contents(self, size: int) -> bytes:
        """Copy what was handed over: codecs need `bytes`, and the answer overwrites the area."""
        file, self._file = self._file, None
        return self._area.contents(size) if file is None else os.pread(file.number, size, 0)

    def _mapped(self, size: int) -> bytes | NDArray[np.uint8]:
        """Map what was handed over as a memory file, which saves a copy of large pixels."""
        file, self._file = self._file, None
        if file is None:
            return self._area.contents(size)
        return np.asarray(Mapping(file, size, populate=False))

    def _send_pixels(self, decoded: Decoded, target: NewPixels) -> None:
        assert isinstance(decoded.image, Image)
        pixels, exif = decoded.image.pixels, decoded.exif
        height, width, channels = pixels.shape
        answer = Pixels(
            decoded.info,
            (height, width, channels),
            decoded.copyright,
            None if exif is None else len(exif),
        )
        if (memory := target.file_of(pixels, exif or b"")) is not None:
            messages.send(self._connection, answer, memory.number)
        else:
            self._send(answer, pixels.data.cast("B"), exif or b"")

    def _send(self, answer: Frame, *parts: bytes | memoryview) -> None:
        """Answer with bytes: in the shared area where they fit, or in a memory file."""
        if sum(map(len, parts)) <= AREA_SIZE:
            self._area.put(*parts)
            messages.send(self._connection, answer)
            return
        messages.send(self._connection, answer, memory_file(*parts).number)

    def _fail(self, error: Exception, no_room: ServiceError = _NO_ROOM) -> None:
        """Send the image's error; raises OutOfMemory if the process should end."""
        short = isinstance(error.__cause__, MemoryError) or not isinstance(error, ServiceError)
        if isinstance(error, ServiceError) and not short:
            messages.send(self._connection, ImageFailed(error.code, error.detail[:MAX_DETAIL]))
            return
        messages.send(self._connection, ImageFailed(no_room.code, no_room.detail, last=True))
        raise OutOfMemory from None
