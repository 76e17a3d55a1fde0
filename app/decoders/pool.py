"""Pool of decoder processes: assigns a process to each image, and replaces those that died.

No image holds a thread while it is decoded: it waits for a free process, hands its file over, and
takes the pixels. If its request ends early, the process is killed and another one is forked, which
takes some milliseconds.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from app.decoders.exchange import (
    NEVER,
    File,
    Seen,
    Unasked,
    decoded_by,
    described_by,
    encoded_by,
    error_from,
    hand_over,
)
from app.decoders.frames import Broken, Encode, Failed, Task
from app.decoders.process import DecoderProcess, Gone, Supply
from app.decoders.queues import EXPENSIVE, Memory, Queues
from models.codec import Decoded, Description
from models.domain.errors import ServiceError, Unavailable, Undecodable, Unprocessable
from models.settings import Settings

T = TypeVar("T")

log = logging.getLogger("darkroom.decoders")

IMAGES_PER_PROCESS = 500
"""A process is replaced after this number, which bounds how long a hostile file has an effect."""

EXIT_REPORT = 2.0  # seconds to wait for the exit status of a process whose connection closed


_REASONS = {
    signal.SIGPROF: "cpu",
    signal.SIGXCPU: "cpu",
    signal.SIGXFSZ: "memory",
    signal.SIGSYS: "sandbox",
    signal.SIGKILL: "killed",
}

_TEXTS = {
    "cpu": "decoding the image took more CPU time than an image of its size may take",
    "memory": "decoding the image took more memory than an image of its width and height may",
    "sandbox": "the decoder was stopped because it made a system call that no image needs",
    "crash": "the decoder crashed on the image",
}

_ENCODING = {
    "cpu": "encoding the image as asked took more CPU time than is allowed",
    "memory": "encoding the image as asked took more memory than is allowed",
}

DECODE_SECONDS, ENCODE_SECONDS = 10.0, 60.0
"""Seconds of CPU time to decode an image of `max_pixels` (smaller images get less, at least 2), and
to encode an image."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The number of processes, and the limits of one image: pixels, bytes of its file, seconds of
    CPU time, and estimated bytes of memory.

    Without processes, threads of the caller decode.
    """

    processes: int
    max_pixels: int
    max_file: int
    seconds: float
    encode_seconds: float = 60.0
    decode_memory: int = 256 << 20
    encode_memory: int = 286 << 20

    @classmethod
    def from_settings(cls, settings: Settings, cores: int) -> "Limits":
        """Return the limits by the settings; the default is one process a core, and at least
        two.
        """
        auto = settings.decoders == "auto"
        return cls(
            max(2, cores) if auto else int(settings.decoders),
            settings.max_pixels,
            settings.max_image_bytes,
            DECODE_SECONDS,
            ENCODE_SECONDS,
            settings.decode_memory,
            settings.encode_memory,
        )


def supported() -> bool:
    """Return whether this system has what the processes need; elsewhere threads decode."""
    needed = hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")
    return sys.platform == "linux" and needed and hasattr(signal, "pidfd_send_signal")


class DecoderPool:
    """Pool of at most `limits.processes` decoder processes, which start when they are first needed.

    `observe` is called for each process that ended, with the reason: `cpu`, `memory`, `crash`,
    `killed`, `sandbox`, `cancelled`, `replaced` or `start`. Lives on one event loop.
    """

    def __init__(
        self,
        limits: Limits,
        observe: Callable[[str], None] = lambda _reason: None,
        memory: Memory | None = None,
    ) -> None:
        self.running = limits.processes > 0 and supported()
        """Whether this pool decodes images; if not, the caller's threads do."""
        self.limits = limits
        self.queues = Queues(limits.processes, memory)
        self._observe = observe
        self._free = asyncio.Semaphore(limits.processes)
        self._idle: list[DecoderProcess] = []
        self._supply = Supply((limits.max_pixels, limits.max_file))
        self.busy = 0
        self.ended: Counter[str] = Counter()

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
        if not self.running:
            return
        with contextlib.suppress(Gone):
            self._idle.append(await self._supply.fork())

    async def decode(
        self, file: File, size: int, accept: Callable[[Seen], bool], unasked: Unasked = NEVER
    ) -> Decoded | Seen:
        """Return the pixels, or the header alone of an image that `accept` refuses.

        An image within `unasked` that is not expensive is decoded before `accept` is asked, which
        saves a round trip. Raises the image's own error, also for what ended the process;
        Unavailable while none can be had or two were killed. Cancelled, it kills the process.
        """
        limits = self.limits
        task = Task(size, limits.max_pixels, limits.seconds, *unasked, EXPENSIVE)
        return await self._run(task, (file, b""), lambda each: decoded_by(each, accept, task))

    async def describe(
        self, file: File, size: int, accept: Callable[[Seen], bool], *, colour: bool, unasked: int
    ) -> Description | Seen:
        """Return what a file contains, or the header alone of an image that `accept` refuses.

        Only with `colour` pixels are decoded, and `accept` is asked for images of more pixels than
        `unasked`. Raises as `decode` does.
        """
        limits = self.limits
        bounds = (unasked, unasked, EXPENSIVE)
        task = Task(size, limits.max_pixels, limits.seconds, *bounds, describe=True, colour=colour)
        return await self._run(task, (file, b""), lambda each: described_by(each, accept, task))

    async def encode(self, task: Encode, pixels: File, exif: bytes | None = None) -> bytes:
        """Return the file that is asked for; raises as `decode` does.

        A descriptor as `pixels` is a memory file of the pixels, and of the metadata behind them.
        """
        return await self._run(task, (pixels, exif or b""), encoded_by)

    async def aclose(self) -> None:
        """End all processes; the pool may not be used any more."""
        for decoder in self._idle:
            decoder.close()
        self._idle.clear()
        await self._supply.aclose()

    async def _run(
        self,
        task: Task | Encode,
        file: tuple[File, bytes],
        talk: Callable[[DecoderProcess], Awaitable[T | Failed]],
    ) -> T:
        async with self._free:
            self.busy += 1
            try:
                return await self._in_process(task, file, talk)
            except Killed:
                if isinstance(task, Encode):  # its memory file may have lost its pixels
                    raise
                return await self._in_process(task, file, talk)
            finally:
                self.busy -= 1

    async def _in_process(
        self,
        task: Task | Encode,
        file: tuple[File, bytes],
        talk: Callable[[DecoderProcess], Awaitable[T | Failed]],
    ) -> T:
        decoder = await self._taken(task, file)
        try:
            found = await talk(decoder)
        except Broken:
            raise await self._death(decoder, task) from None
        except BaseException:
            self._end(decoder, "cancelled")
            raise
        if isinstance(found, Failed):
            self._end(decoder, "memory") if found.last else self._give_back(decoder)
            raise error_from(found)
        self._give_back(decoder)
        return found

    async def _taken(self, task: Task | Encode, file: tuple[File, bytes]) -> DecoderProcess:
        """Return a process that has been handed the file; raises Unavailable."""
        while True:
            # The process that was used last is taken first: its memory is in the caches.
            decoder = self._idle.pop() if self._idle else await self._new()
            try:
                if not decoder.ended.done():
                    await hand_over(decoder, task, *file)
                    return decoder
            except Broken:
                pass
            except BaseException:  # cancelled: a thread may still write into the area
                self._end(decoder, "cancelled")
                raise
            self._end(decoder, "crash")  # it ended while it waited, not because of this file

    async def _new(self) -> DecoderProcess:
        try:
            return await self._supply.fork()
        except Gone as error:
            self._count("start")
            log.warning("%s", error)
            raise Unavailable(
                "no decoder process can be started at the moment; send the image again later"
            ) from error

    def _give_back(self, decoder: DecoderProcess) -> None:
        decoder.images += 1
        if decoder.images >= IMAGES_PER_PROCESS:
            self._end(decoder, "replaced")
            return
        self._idle.append(decoder)

    async def _death(self, decoder: DecoderProcess, task: Task | Encode) -> ServiceError:
        """Return the error of the image whose process ended, or sent what no decoder sends."""
        decoder.kill()  # has no effect on one that has ended
        try:
            async with asyncio.timeout(EXIT_REPORT):
                # The connection closes before the exit status can be read. The shield keeps a
                # timeout here from cancelling the future that others read too.
                reason = reason_of(await asyncio.shield(decoder.ended))
        except TimeoutError:
            reason = "crash"
        except BaseException:
            self._end(decoder, "cancelled")
            raise
        if not decoder.closed:  # it was killed above, for what it sent
            reason = "crash"
        log.info("a decoder process ended on an image: %s", reason)
        self._end(decoder, reason)
        return error_of(reason, task)

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


def reason_of(status: int | None) -> str:
    """Return the reason in one word, by the exit status as waitpid(2) gives it; None: unknown."""
    if status is None or not os.WIFSIGNALED(status):
        return "crash"
    return _REASONS.get(signal.Signals(os.WTERMSIG(status)), "crash")


def error_of(reason: str, task: Task | Encode) -> ServiceError:
    """Return the image's own error, or Killed."""
    if reason == "killed":
        return Killed()
    if isinstance(task, Encode):
        text = _ENCODING.get(reason, "the encoder stopped on the image")
        return Unprocessable(f"{text}; ask for another format or faster options")
    return Undecodable(f"{_TEXTS[reason]}; save it anew as a plain JPEG or PNG, or send it smaller")
