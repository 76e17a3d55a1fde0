"""Pool of decoder processes: hands each image to a process, and replaces processes that ended.

The fork server starts the processes. Each process has a connection of its own, over which the fork
server reports how the process began and ended. To close the connection kills the process.

No image holds a thread while it is decoded: it waits for a free process, hands its file over, and
takes the pixels. If its request ends early, the process is killed and another one is forked, which
takes some milliseconds. No answer of a process is trusted: each is checked before it becomes a type
of `models`.
"""

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from app.decoders import messages
from app.decoders.memory import KEPT, Bytes, SharedArea, new_area, release
from app.decoders.messages import (
    MAX_PACKET,
    Bounds,
    Broken,
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
from models.codec import Decoded, Description, decode_memory
from models.domain.errors import (
    InvalidParameter,
    ServiceError,
    TooManyPixels,
    Unavailable,
    Undecodable,
    Unprocessable,
    UnsupportedMedia,
)
from models.domain.image import Image
from models.settings import Settings

log = logging.getLogger("darkroom.decoders")

Data = TypeVar("Data", bytes, Bytes)

File = bytes | int
"""A file's bytes, or a descriptor of it that stays the caller's."""


EXPENSIVE = 1.0
"""Estimated CPU seconds of decoding from which an image leaves one process to the others."""

INLINE = 1 << 20
"""Bytes that are copied on the event loop, in about 0.1 ms; more are copied on a thread."""

IMAGES_PER_PROCESS = 500
"""A process is replaced after this number, which bounds how long a hostile file has an effect."""

START_WITHIN = 20.0
"""Seconds that a decoder may take to start, with its fork server, which takes 0.3 on an idle
machine.
"""

ENDING = 0.05
"""Seconds from the end of a connection to the fork server until the server has ended, too."""

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

_ERRORS: dict[str, type[ServiceError]] = {
    each.code: each
    for each in (Undecodable, TooManyPixels, UnsupportedMedia, Unprocessable, InvalidParameter)
}

_REASONS = {
    signal.SIGPROF: "cpu",
    signal.SIGXCPU: "cpu",
    signal.SIGSYS: "sandbox",
    signal.SIGKILL: "killed",
}

_TEXTS = {
    "cpu": "decoding the image took more CPU time than an image of its size may take",
    "sandbox": "the decoder was stopped because it made a system call that no image needs",
    "crash": "the decoder crashed on the image",
}

_ENCODING = {"cpu": "encoding the image as asked took more CPU time than is allowed"}

DECODE_SECONDS, ENCODE_SECONDS = 10.0, 60.0
"""Seconds of CPU time to decode an image of `max_pixels` (smaller images get less, at least 2), and
to encode an image."""

ANY = Bounds(1 << 60, 1 << 60, 1 << 60, math.inf)
"""The bounds that every image is within."""


Task = DecodeTask | Encode
Found = Decoded | Description | Seen | tuple[bytes, int | None]


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """The number of processes, and the limits of one image: pixels, bytes of its file, and seconds
    of CPU time to decode it. Without processes, threads of the caller decode.
    """

    processes: int
    max_pixels: int
    max_file: int
    seconds: float = DECODE_SECONDS

    @classmethod
    def from_settings(cls, settings: Settings, cores: int) -> "DecoderLimits":
        """Return the limits of the settings; the default is a process a core, and at least two."""
        auto = settings.decoders == "auto"
        processes = max(2, cores) if auto else int(settings.decoders)
        return cls(processes, settings.max_pixels, settings.max_image_bytes)


class DecoderProcess:
    """Handle of a decoder process, which serves one image at a time, and of its shared area."""

    def __init__(self, connection: socket.socket, area: SharedArea) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._packet: asyncio.Future[bytes] | None = None
        self.alive = True
        """Whether the connection is open."""
        self.area = area
        self.pid = 0
        self.images = 0
        # For its whole life: `sock_recv` would add and remove a reader for each image, in 0.03 ms.
        self._loop.add_reader(connection.fileno(), self._on_readable)

    async def receive(self) -> Frame:
        """Return the next frame, which is Exited if the process has ended; raises Broken.

        The end of the fork server ends all its decoders by SIGKILL.
        """
        self._packet = self._loop.create_future()
        packet = await self._packet if self.alive else b""
        return messages.decode(packet) if packet else Exited(signal.SIGKILL)

    def send(self, frame: Frame) -> None:
        """Send a frame; the socket has room, as each is answered before the next is sent.

        Where the process has ended, `receive` returns Exited.
        """
        with contextlib.suppress(OSError):
            self._connection.send(messages.encode(frame))

    def close(self) -> None:
        """Close the connection, which kills the process; further calls have no effect."""
        if self.alive:
            self.alive = False
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()

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


class ForkServer:
    """Handle of the fork server, which starts decoder processes for images of these bounds."""

    def __init__(self, max_pixels: int, max_file: int) -> None:
        """Start the server; raises OSError. Decoders wait until it has loaded the codecs."""
        self._bounds = max_pixels, max_file
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        numbers = map(str, (theirs.fileno(), max_pixels, max_file))
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, *numbers],  # nothing of this folder
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **_ENVIRONMENT},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            self._control.close()
            raise

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    async def fork(self) -> tuple[DecoderProcess, str]:
        """Return a new process, and which part of the sandbox the kernel lacks; raises OSError."""
        memory = new_area(*self._bounds)
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            decoder = DecoderProcess(ours, SharedArea(memory))
            with theirs:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno(), memory])
        finally:
            os.close(memory)
        try:
            async with asyncio.timeout(START_WITHIN):
                frame = await decoder.receive()
            if not isinstance(frame, Ready) or not frame.pid:
                reason = frame.problem if isinstance(frame, Ready) else "the fork server ended"
                raise OSError(reason)
        except BaseException as error:
            decoder.close()
            if isinstance(error, Broken | TimeoutError):
                self.process.kill()
                raise OSError("the process did not start") from error
            raise
        decoder.pid = frame.pid
        return decoder, frame.problem

    async def close(self) -> None:
        """End the fork server, and with it all its decoders."""
        self._control.close()
        try:
            await asyncio.to_thread(self.process.wait, END_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


class DecoderPool:
    """Pool of at most `limits.processes` decoder processes, which start when they are first needed.

    `observe` is called for each process that ended, with the reason: `cpu`, `memory`, `crash`,
    `killed`, `sandbox`, `cancelled`, `replaced` or `start`. Lives on one event loop.

    Work that is `slow`, as expensive images and those of jobs are, leaves one process to the rest.
    """

    def __init__(
        self, limits: DecoderLimits, observe: Callable[[str], None] = lambda _reason: None
    ) -> None:
        supported = hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")  # Linux has both
        self.running = limits.processes > 0 and supported
        """Whether this pool decodes images; if not, the caller's threads do."""
        self.limits = limits
        self.busy = 0
        self.ended: Counter[str] = Counter()
        self._observe = observe
        self._free = asyncio.Semaphore(limits.processes)
        self._slow = asyncio.Semaphore(max(1, limits.processes - 1))
        self._idle: list[DecoderProcess] = []
        self._starting = asyncio.Lock()
        self._warned = False
        self._server: ForkServer | None = None

    def state(self) -> dict[str, object]:
        """Describe for people how many processes work and wait, and why others ended."""
        return {
            "busy": self.busy,
            "idle": len(self._idle),
            "most": self.limits.processes if self.running else 0,
            "ended": dict(self.ended),
        }

    async def start(self) -> None:
        """Fork one process before the first image; a failure is reported with the first image."""
        if self.running:
            with contextlib.suppress(Unavailable):
                self._idle.append(await self._new())

    async def decode(
        self,
        file: File,
        size: int,
        bounds: Bounds = ANY,
        wanted: Wanted = Wanted.PIXELS,
        *,
        slow: bool = False,
    ) -> Decoded | Description | Seen:
        """Return the pixels or the description of a file, or the header alone of an image beyond
        the bounds, which descriptions without a colour do not have.

        The pixels are the service's alone: no decoder process can write to them any more. Raises
        the image's own error, also for what ended the process; Unavailable while no process can be
        had or two were killed. Cancelled, it kills the process.
        """
        task = DecodeTask(size, self.limits.max_pixels, self.limits.seconds, bounds, wanted)
        found = await self._run(task, file, slow=slow)
        assert not isinstance(found, tuple)
        return found

    async def encode(
        self, task: Encode, pixels: Bytes, exif: bytes | None, *, slow: bool = False
    ) -> tuple[bytes, int | None]:
        """Return what `codec.encode_within` returns; raises as `decode` does.

        The pixels are C-contiguous. Large ones lose their memory while a process takes them.
        """
        found = await self._run(task, pixels, exif or b"", slow=slow)
        assert isinstance(found, tuple)
        return found

    async def aclose(self) -> None:
        """End all processes; the pool may not be used any more."""
        for decoder in self._idle:
            decoder.close()
        self._idle.clear()
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _run(self, task: Task, file: File | Bytes, more: bytes = b"", *, slow: bool) -> Found:
        async with self._slow if slow else nullcontext(), self._free:
            self.busy += 1
            try:
                return await self._in_process(task, file, more)
            except Killed:
                if self._server is not None and not self._server.alive:
                    for decoder in self._idle:  # each of them ends with the fork server
                        decoder.close()
                if isinstance(task, Encode):  # its pixels may be gone
                    raise
                return await self._in_process(task, file, more)
            finally:
                self.busy -= 1

    async def _in_process(self, task: Task, file: File | Bytes, more: bytes) -> Found:
        decoder = await self._free_process()
        answer: Frame | None = None
        try:
            await _hand_over(decoder, task, file, more)
            answer = await decoder.receive()
            if not isinstance(answer, Exited | ImageFailed):
                found = await read(decoder, task, answer)
                self._give_back(decoder)
                return found
        except (Broken, ValueError):
            answer = None
        except BaseException:  # a thread may still use the area
            self._end(decoder, "cancelled")
            raise
        if isinstance(answer, ImageFailed):
            self._end(decoder, "memory") if answer.last else self._give_back(decoder)
            raise _ERRORS.get(answer.code, Undecodable)(answer.detail)
        reason = "crash" if answer is None else _reason_of(answer.status)
        log.info("a decoder process ended on an image: %s", reason)
        self._end(decoder, reason)
        raise _error_of(reason, task)

    async def _free_process(self) -> DecoderProcess:
        """Return an idle process or a new one; raises Unavailable."""
        while self._idle:
            # The process that was used last is taken first: its memory is in the caches.
            decoder = self._idle.pop()
            if decoder.alive:
                return decoder
            self._end(decoder, "crash")  # it ended while it waited
        return await self._new()

    async def _new(self) -> DecoderProcess:
        """Return a new process, of a new fork server if there is none; raises Unavailable."""
        server = None
        try:
            async with self._starting:
                if self._server is None or not self._server.alive:
                    if self._server is not None:
                        await self._server.close()
                    self._server = ForkServer(self.limits.max_pixels, self.limits.max_file)
                server = self._server
            decoder, problem = await server.fork()
        except OSError as error:
            self._count("start")
            log.warning("no decoder process can be started: %s", error)
            await asyncio.sleep(ENDING)
            if server is not None and not server.alive:
                raise Killed from error
            raise Unavailable(
                "no decoder process can be started at the moment; send the image again later"
            ) from error
        if problem and not self._warned:
            self._warned = True
            log.warning("decoder processes run without a part of their sandbox: %s", problem)
        return decoder

    def _give_back(self, decoder: DecoderProcess) -> None:
        decoder.images += 1
        if decoder.images >= IMAGES_PER_PROCESS:
            self._end(decoder, "replaced")
        else:
            self._idle.append(decoder)

    def _end(self, decoder: DecoderProcess, reason: str) -> None:
        decoder.close()
        self._count(reason)

    def _count(self, reason: str) -> None:
        self.ended[reason] += 1
        self._observe(reason)


class Killed(Unavailable):
    """A process was killed from outside: its fork server ended, or the host ran out of memory.

    The image is not the reason, so it is worth another process.
    """

    def __init__(self) -> None:
        super().__init__("the system stopped the process of the image; send it again later")


def _reason_of(status: int) -> str:
    """Return the reason in one word, by the exit status as waitpid(2) gives it."""
    if not os.WIFSIGNALED(status):
        return "crash"
    return _REASONS.get(signal.Signals(os.WTERMSIG(status)), "crash")


def _error_of(reason: str, task: Task) -> ServiceError:
    """Return the image's own error, or Killed."""
    if reason == "killed":
        return Killed()
    if isinstance(task, Encode):
        text = _ENCODING.get(reason, "the encoder stopped on the image")
        return Unprocessable(f"{text}; ask for another format or faster options")
    return Undecodable(f"{_TEXTS[reason]}; save it anew as a plain JPEG or PNG, or send it smaller")


async def _hand_over(decoder: DecoderProcess, task: Task, file: File | Bytes, more: bytes) -> None:
    """Put a file, or pixels and the bytes `more` behind them, into the area, and send the task."""
    area = decoder.area
    if isinstance(file, int):
        assert isinstance(task, DecodeTask)
        await asyncio.to_thread(area.read, file, task.size)
    elif isinstance(file, np.ndarray) and file.nbytes > KEPT:
        await asyncio.to_thread(area.put, file, more, taken=release)
    elif len(file) > INLINE or isinstance(file, np.ndarray):
        await asyncio.to_thread(area.put, file, more)
    else:
        area.put(file, more)
    decoder.send(task)


async def read(decoder: DecoderProcess, task: Task, frame: Frame) -> Found:
    """Return what a process answers to a task: an encoded file, a description, an image, or the
    header of an image beyond the bounds. Raises Broken or ValueError for an answer that no decoder
    gives.
    """
    if isinstance(task, Encode):
        if not isinstance(frame, Encoded):
            raise Broken("no encoded file")
        return await _taken(decoder.area.contents, frame.size), frame.quality
    pixels = task.wanted in (Wanted.PIXELS, Wanted.FRAMES)
    if isinstance(frame, Described) and not pixels:
        return frame.description
    if not isinstance(frame, Seen) and not (isinstance(frame, Pixels) and pixels):
        raise Broken("an answer to another task")
    info = frame.info
    if min(info.width, info.height, info.frames) < 1 or not 1 <= info.orientation <= 8:
        raise ValueError("an impossible header")
    if isinstance(frame, Seen):
        # The process has read the whole file, so its estimate of memory may be larger than ours. It
        # is never smaller, unless a hostile file has taken the process over.
        if not 0 <= frame.cost < math.inf:
            raise ValueError("an impossible cost")
        return Seen(info, frame.cost, max(frame.memory, decode_memory(info, task.size)))
    height, width, channels = frame.shape
    if channels not in (1, 3, 4) or height * width > task.max_pixels or (frame.exif or 0) < 0:
        raise ValueError("an impossible image")
    if (height, width) != (info.height, info.width) or channels > info.most_channels:
        raise ValueError("an image of another shape than its header states")
    if not task.bounds.allow(info):
        raise ValueError("more pixels than memory was reserved for")
    animation = frame.animation
    if info.stack != (len(animation.milliseconds) if animation else 1) or height % info.stack:
        raise ValueError("another number of frames than the header states")
    size = height * width * channels
    data = await _taken(decoder.area.take, size + (frame.exif or 0))
    exif = None if frame.exif is None else data[size:].tobytes()
    image = Image(data[:size].reshape(frame.shape))
    return Decoded(image, info, frame.copyright, exif, animation)


async def _taken(take: Callable[[int], Data], size: int) -> Data:
    """Return `size` bytes of an answer, which `take` takes out of the area."""
    return take(size) if size <= INLINE else await asyncio.to_thread(take, size)
