"""What runs inside a decoder process: one image after the other, until the service hangs up.

For each: a Task with the file's descriptor, the Info of its header, then Go or Drop, then Pixels
with a memory file. Anything that is wrong with the file is a Failed instead.
"""

import os
import socket

import numpy as np

from app.decoders import frames, sandbox
from app.decoders.frames import Broken, Encode, Encoded, Failed, Go, Info, Pixels, Ready, Task
from app.decoders.memory import contents, memory_file
from models import codec
from models.codec import Decoded, ImageInfo
from models.domain.errors import ServiceError, Undecodable, Unprocessable
from models.domain.image import Image

MAX_DETAIL = 1000
"""Characters of an error text."""


_NO_ROOM = Undecodable(
    "decoding the image takes more memory than an image of its width and height may; "
    "save it anew as a plain JPEG or PNG"
)
_NO_ROOM_TO_ENCODE = Unprocessable(
    "encoding the image as asked takes more memory than is allowed; ask for another format"
)


class OutOfMemory(Exception):
    """The image needed more memory than its size explains; this process had better end."""


def serve(connection: socket.socket, max_pixels: int, max_file: int) -> None:
    """Lock the process in, then decode until the connection closes."""
    allowance = sandbox.Allowance()
    problem = sandbox.enter(max_pixels, max_file)
    frames.send(connection, Ready(problem))
    while True:
        try:
            task, descriptor = frames.receive(connection)
        except Broken:
            return
        assert isinstance(task, Task | Encode)
        assert descriptor is not None
        try:
            if isinstance(task, Task):
                _decode(connection, task, descriptor, allowance)
            else:
                _encode(connection, task, descriptor, allowance)
        except OutOfMemory:
            return
        finally:
            allowance.end()


def _decode(
    connection: socket.socket, task: Task, descriptor: int, allowance: sandbox.Allowance
) -> None:
    allowance.grant(task.size, 0, min(task.seconds, sandbox.MIN_SECONDS))
    try:
        data = contents(descriptor, task.size)
        os.close(descriptor)
        opened = codec.open_file(data, max_pixels=task.max_pixels)
        info = opened.info
        frames.send(connection, _info(info, opened.cost))
        if not isinstance(frames.receive(connection)[0], Go):
            return
        seconds = sandbox.seconds_for(info.n_pixels, task.max_pixels, task.seconds)
        allowance.grant(task.size, info.n_pixels, seconds)
        _send(connection, opened.decode(), opened.cost)
    except (ServiceError, MemoryError) as error:
        # No second name for the error: it knows this frame, and the two would keep the file alive.
        _fail(connection, error)


def _encode(
    connection: socket.socket, task: Encode, descriptor: int, allowance: sandbox.Allowance
) -> None:
    height, width, channels = task.shape
    size, exif_size = height * width * channels, task.exif or 0
    bytes_ = sandbox.ENCODED_BYTES_PER_PIXEL
    allowance.grant(exif_size, height * width, task.seconds, bytes_)
    try:
        data = contents(descriptor, size + exif_size)
        os.close(descriptor)
        image = Image(np.frombuffer(data, np.uint8, size).reshape(task.shape))
        exif = None if task.exif is None else data[size:]
        made = codec.encode(image, task.format, task.encoding, copyright=task.copyright, exif=exif)
        memory = memory_file(made)
    except (ServiceError, MemoryError, OSError, RuntimeError, ValueError) as error:
        _fail(connection, error, _NO_ROOM_TO_ENCODE)  # which encoders say in many ways
        return
    frames.send(connection, Encoded(len(made)), [memory])
    os.close(memory)


def _fail(connection: socket.socket, error: Exception, no_room: ServiceError = _NO_ROOM) -> None:
    """Tell of the image's error; raises OutOfMemory where this process had better end."""
    short = isinstance(error.__cause__, MemoryError) or not isinstance(error, ServiceError)
    if isinstance(error, ServiceError) and not short:
        frames.send(connection, Failed(error.code, error.detail[:MAX_DETAIL]))
        return
    frames.send(connection, Failed(no_room.code, no_room.detail, last=True))
    raise OutOfMemory from None


def _send(connection: socket.socket, decoded: Decoded, cost: float) -> None:
    assert isinstance(decoded.image, Image)
    pixels, exif = decoded.image.pixels, decoded.exif
    memory = memory_file(pixels.data.cast("B"), exif or b"")
    try:
        length = None if exif is None else len(exif)
        height, width, channels = pixels.shape
        answer = Pixels(
            _info(decoded.info, cost), (height, width, channels), decoded.copyright, length
        )
        frames.send(connection, answer, [memory])
    finally:
        os.close(memory)


def _info(info: ImageInfo, cost: float) -> Info:
    return Info(
        info.format.value,
        info.width,
        info.height,
        info.orientation,
        info.frames,
        info.mode,
        info.fast_jpeg,
        cost,
    )
