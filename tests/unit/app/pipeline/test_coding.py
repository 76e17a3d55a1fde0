"""What an image holds before it is decoded, and what threads and decoder processes do for it."""

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
from PIL import Image as Pillow

from app.decoders.memory import LARGE_FILE, SMALL, opening_bytes
from app.decoders.messages import Bounds
from app.intake.spool import Blob
from app.intake.wanted import OutputFormat, Version
from app.pipeline.coding import (
    AHEAD,
    DECODING,
    SPARE,
    TYPICAL,
    CodecThreads,
    ImageCodec,
)
from app.pipeline.memory import to_filter
from app.pipeline.outcomes import Timings
from models.api.schemas import InfoOptions
from models.codec import Decoded, Encoding, ImageFormat, ImageInfo
from models.codec import encoded as left_encoded
from models.codec.colour import cicp_profile
from models.codec.decode import NewProfile
from models.domain.backend import Load
from models.domain.image import Image
from tests.fake_decoders import MOST, Context, Pool, decode, decoder_of
from tests.pictures import damaged_jpeg, drawing, encoded, jpeg, png
from workers.filters.registry import parse_chain
from workers.operations import FilterChain

PIXELS = TYPICAL[0] * TYPICAL[1]
OPENING = opening_bytes(LARGE_FILE)
PROGRESSIVE = encoded(drawing(), progressive=True)


def decoded(
    data: bytes, memory: int = 1, pool: Pool | None = None, *, in_background: bool = False
) -> list[int]:
    """Decode a file whose image needs `memory`; return what was held, with 0 for the image."""
    under_way = Context(in_background=in_background)

    async def scenario() -> None:
        await decode(decoder_of(pool or Pool()), data, lambda _: memory, under_way)
        under_way.steps.append(0)
        under_way.release()

    asyncio.run(scenario())
    return under_way.steps


def described(data: bytes, *, colour: bool) -> list[int]:
    under_way = Context()

    async def scenario() -> None:
        found = await decoder_of(Pool()).described(
            Blob.of(data), under_way, InfoOptions(colour=colour)
        )
        assert found.width
        under_way.release()

    asyncio.run(scenario())
    return under_way.steps


def padded(data: bytes, size: int = LARGE_FILE) -> bytes:
    """Return an image file with zeros behind it."""
    return data + bytes(size - len(data))


class Gate:
    """Work that has `begun` on a thread and ends when a test lets it `go_on`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self.go_on, self.ended = Event(), Event(), Event()
        self._error = error

    def __call__(self) -> None:
        self.begun.set()
        self.go_on.wait()
        self.ended.set()
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, ValueError()], ids=["result", "error"])
async def test_a_cancelled_caller_holds_what_it_holds_until_its_work_has_ended(
    error: Exception | None,
) -> None:
    work, threads, done = Gate(error), CodecThreads(1), list[int]()
    caller = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(work.begun.wait)
    waiting = asyncio.create_task(threads.run(done.append, 1))
    await asyncio.sleep(0)
    for _ in range(3):  # as a deadline, a client that leaves and a shutdown may
        caller.cancel()
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (caller.done(), waiting.cancelled()) == (False, True)
    work.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended.is_set()
    threads.close()
    assert not done, "work that was cancelled before it began is never done"


@pytest.mark.parametrize(
    ("ops", "format_", "opaque", "with_alpha"),
    [
        ([{"name": "invert"}], ImageFormat.JPEG, PIXELS, PIXELS),
        ([{"name": "gaussian_blur"}], ImageFormat.JPEG, PIXELS, 0),
        ([{"name": "grayscale"}, {"name": "box_blur"}], ImageFormat.JPEG, PIXELS, 0),
        ([{"name": "invert"}], ImageFormat.WEBP, PIXELS, 0),
        ([{"name": "resize", "width": 4000, "height": 4000}], ImageFormat.JPEG, 0, 0),
    ],
)
async def test_images_that_may_be_large_are_not_decoded_before_they_hold_memory(
    ops: list[dict[str, Any]], format_: ImageFormat, opaque: int, with_alpha: int
) -> None:
    chain, pool = FilterChain(parse_chain(ops)), Pool()
    version = Version(chain, OutputFormat(format_), Encoding())
    need = lambda seen: to_filter(version, MOST, seen)  # noqa: E731
    await decode(decoder_of(pool), png(), need)
    assert pool.bounds[0] == Bounds(opaque, with_alpha, SMALL, 1.0)


@pytest.mark.parametrize(
    ("data", "memory", "steps", "asked"),
    [
        (png(), 1, [0], 1),
        (png(), 1 << 30, [1 << 30, 0, -(1 << 30)], 2),
        (jpeg(), 1 << 30, [1 << 30, 0, -(1 << 30)], 0),
        (damaged_jpeg(), 1, [0], 1),
        (padded(png()), 1, [OPENING, 0, -OPENING], 1),
        (padded(PROGRESSIVE), 1, [OPENING, 0, -OPENING], 1),
        (padded(png()), 4 * OPENING, [OPENING, -OPENING, 4 * OPENING, 0, -4 * OPENING], 2),
        (padded(png(), LARGE_FILE - 1), 1, [0], 1),
        (padded(jpeg()), 1, [0], 0),
        (padded(damaged_jpeg()), 1, [OPENING, 0, -OPENING], 1),
    ],
)
def test_an_image_holds_what_it_needs_from_before_it_is_opened_or_decoded(
    data: bytes, memory: int, steps: list[int], asked: int
) -> None:
    pool = Pool()
    held = decoded(data, memory, pool)
    assert [each for each in held if abs(each) != 1] == steps
    assert len(pool.bounds) == asked


async def test_an_image_of_an_untypical_shape_is_decoded_again_if_it_needs_more() -> None:
    pool = Pool()
    need = lambda seen: 90 << 20 if seen.info.width < TYPICAL[1] else 1  # noqa: E731
    await decode(decoder_of(pool), png(), need)
    assert len(pool.bounds) == 2


def test_a_machine_without_processes_decodes_on_threads() -> None:
    pool = Pool()
    pool.running = False
    assert decoded(png(), 1 << 30, pool) == [1 << 30, 0, -(1 << 30)]
    assert not pool.bounds


def test_images_of_jobs_leave_a_process_to_others() -> None:
    pool = Pool()
    for in_background in (True, False):
        decoded(png(), 1, pool, in_background=in_background)
    assert pool.slow == [True, False]


def test_an_image_is_described_with_the_memory_that_it_needs() -> None:
    for colour in (False, True):
        assert described(padded(png()), colour=colour) == [OPENING, -OPENING]
    assert described(png(), colour=True) == []
    large = encoded(Pillow.new("RGB", (2400, 2400)), "PNG")
    first, last = described(large, colour=True)
    assert first == -last > SMALL
    assert described(large, colour=False) == []


async def test_images_in_the_background_keep_no_other_image_waiting_for_a_thread() -> None:
    blocked, threads = Event(), CodecThreads(1)
    decoder = decoder_of(Pool(), threads)
    behind = asyncio.create_task(threads.run(blocked.wait, 60.0, background=True))
    async with asyncio.timeout(30):
        await decode(decoder, jpeg(), lambda _: 1)
    blocked.set()
    await decode(decoder, jpeg(), lambda _: 1, Context(in_background=True))
    assert await behind


@pytest.mark.parametrize(
    ("takes", "queued", "decoding", "busy", "idle", "sooner"),
    [
        (False, 0, 0.0, 0, 1.0, False),
        (True, AHEAD, 1.0, 0, 1.0, True),
        (True, AHEAD + 1, DECODING, 0, SPARE, False),
        (True, AHEAD + 1, DECODING - 0.1, 0, SPARE, True),
        (True, AHEAD + 1, DECODING, 1, SPARE, True),
        (True, AHEAD + 1, DECODING, 0, SPARE - 0.1, True),
    ],
)
def test_threads_decode_jpegs_only_if_decoding_limits_the_device_and_cores_are_idle(
    takes: bool,
    queued: int,
    decoding: float,
    busy: int,
    idle: float,
    sooner: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = CodecThreads(1)
    threads.busy = busy
    decoder = decoder_of(Pool(), threads)
    monkeypatch.setattr(decoder._idle, "share", lambda: idle)
    load = Load("gpu", queued, 0, 0.0, alive=True, takes_jpegs=takes, decoding=decoding)
    assert decoder.device_is_sooner(load) is sooner


async def test_a_new_profile_of_a_jpeg_is_not_prepared_on_the_event_loop() -> None:
    profile = cicp_profile(9, 5, grey=False)  # of no other test
    data = encoded(drawing(), icc_profile=profile)
    load = Load("gpu", 0, 0, 0.0, alive=True, takes_jpegs=True)
    with pytest.raises(NewProfile):
        left_encoded(data, max_pixels=MOST, prepare=False)
    for _ in range(2):
        found = await decoder_of(Pool()).encoded(Blob.of(data), Timings(), load)
        assert found is not None
        assert left_encoded(data, max_pixels=MOST, prepare=False) is not None


SLOW = Encoding(png_level=6)
"""Options that take over `LONG_ENCODING` for the large image below: a process encodes it."""


def large() -> Image:
    return Image(np.broadcast_to(np.arange(2000, dtype=np.uint8)[:, None, None], (2000, 2000, 3)))


def held(image: Image) -> Decoded:
    info = ImageInfo(ImageFormat.PNG, 2000, 2000, 1, 1, "RGB", fast_jpeg=False)
    return Decoded(image, info, "the copyright")


@pytest.mark.parametrize(
    ("cost", "background", "slow"), [(0.5, True, True), (0.5, False, False), (5.0, False, True)]
)
async def test_images_that_are_expensive_or_of_jobs_are_encoded_beside_others(
    cost: float, background: bool, slow: bool
) -> None:
    pool: Any = SimpleNamespace(running=True, encode=AsyncMock())
    codec_ = ImageCodec(pool, CodecThreads(1), MOST)
    await codec_.encode(held(large()), ImageFormat.PNG, SLOW, cost, background=background)
    assert pool.encode.await_args.kwargs == {"slow": slow}
