"""Fakes of what decodes images: a pool without processes, and the context of an image."""

from collections.abc import Callable
from dataclasses import dataclass

from app.decoders import Limits, Seen, Unasked
from app.decoders.exchange import File
from app.decoders.queues import Memory, Queues
from app.pipeline.memory.codec_memory import CodecMemory
from app.pipeline.results.timings import Timings
from models import codec
from models.codec import Decoded, Description

MOST = 50_000_000
"""Pixels of an image, at most."""


class Pool:
    """A pool that notes what it may decode unasked, and decodes on the event loop."""

    running = True
    limits = Limits(2, MOST, 1 << 20, 10.0)

    def __init__(self, memory: Memory | None = None) -> None:
        self.queues = Queues(2, memory or CodecMemory(192 << 20))
        self.unasked: list[Unasked] = []

    async def decode(
        self, file: File, _size: int, accept: Callable[[Seen], bool], unasked: Unasked
    ) -> Decoded | Seen:
        self.unasked.append(unasked)
        assert isinstance(file, bytes)
        opened = codec.open_file(file, max_pixels=MOST)
        seen = Seen(opened.info, opened.cost, opened.memory)
        return opened.decode() if accept(seen) else seen

    async def describe(
        self, file: File, _size: int, accept: Callable[[Seen], bool], *, colour: bool, unasked: int
    ) -> Description | Seen:
        self.unasked.append(Unasked(unasked, unasked))
        assert isinstance(file, bytes)
        opened = codec.open_file(file, max_pixels=MOST)
        seen = Seen(opened.info, opened.cost, opened.memory)
        return opened.describe(colour=colour) if accept(seen) else seen


@dataclass(frozen=True)
class Permit:
    """What the decoder reads of a permit."""

    in_background: bool


class Context:
    """What the decoder reads of the context of an image."""

    def __init__(self, *, in_background: bool = False) -> None:
        self.stages, self.permit = Timings(), Permit(in_background)
