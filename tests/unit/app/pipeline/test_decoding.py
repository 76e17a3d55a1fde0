"""What is asked of decoder processes before an image is decoded."""

import asyncio
from threading import Event
from typing import Any, cast

import pytest

from app.decoders import DecoderPool, Seen, Unasked
from app.intake.output_format import FixedFormat
from app.intake.spool import Blob
from app.intake.wanted import Output, Parts, Version
from app.pipeline.context import ImageContext
from app.pipeline.decoding import TYPICAL, ImageDecoder
from app.pipeline.memory.codec_memory import CodecMemory
from app.pipeline.memory.memory_need import PartsNeed, to_filter
from app.pipeline.memory.pixel_budget import PixelBudget
from models import codec
from models.codec import Encoding, ImageFormat
from tests.fake_decoders import MOST, Context, Pool
from tests.pictures import damaged_jpeg, jpeg, png
from workers.filters.registry import parse_chain
from workers.operations import FilterChain

PIXELS = TYPICAL[0] * TYPICAL[1]


def version(*ops: dict[str, Any], format_: ImageFormat = ImageFormat.JPEG) -> Version:
    return Version(FilterChain(parse_chain(ops)), Output(FixedFormat(format_), Encoding()))


def unasked(ops: list[dict[str, Any]], format_: ImageFormat = ImageFormat.JPEG) -> Unasked:
    wanted, pool = version(*ops, format_=format_), Pool()

    async def scenario() -> None:
        decoder = ImageDecoder(
            cast(Any, None), PixelBudget(10**9), cast(DecoderPool, pool), MOST, 1
        )
        async with decoder.decoded(
            Blob.of(png()),
            cast(ImageContext, Context()),
            lambda seen: seen.info.n_pixels,
            lambda seen: to_filter(wanted, MOST, seen),
        ):
            pass
        decoder.close()

    asyncio.run(scenario())
    return pool.unasked[0]


def test_photos_of_a_typical_size_are_decoded_unasked_for_most_filters() -> None:
    assert unasked([{"name": "invert"}]) == Unasked(PIXELS, PIXELS)
    assert unasked([{"name": "gaussian_blur"}]).opaque == PIXELS


@pytest.mark.parametrize(
    ("ops", "format_"),
    [
        ([{"name": "gaussian_blur"}], ImageFormat.JPEG),
        ([{"name": "grayscale"}, {"name": "box_blur"}], ImageFormat.JPEG),
        ([{"name": "invert"}], ImageFormat.WEBP),
    ],
)
def test_what_alpha_makes_large_is_not_decoded_before_memory_was_asked_for(
    ops: list[dict[str, Any]], format_: ImageFormat
) -> None:
    found = unasked(ops, format_)
    assert found == Unasked(PIXELS, 0)


def test_what_is_large_at_any_size_is_never_decoded_unasked() -> None:
    enlarging: dict[str, Any] = {"name": "resize", "width": 4000, "height": 4000}
    assert unasked([enlarging]) == Unasked(0, 0)


def test_the_parts_that_run_are_those_whose_memory_was_reserved() -> None:
    blur, asked = version({"name": "gaussian_blur", "sigma": 2}), list[int]()
    memory = CodecMemory(192 << 20)

    def at_once(_pixels: int, n_bytes: int) -> int:
        asked.append(n_bytes)
        return min(9, memory.at_once(n_bytes))

    need = PartsNeed(Parts(None, (blur,) * 9), MOST, at_once, on_device=False)
    info = codec.probe(png(0, 2400, 1000), max_pixels=MOST)
    seen = Seen(info, 0.0, 90_000_000)  # decoding needs more than a part of it
    reserved = need.memory(seen)
    assert need.parts == 2
    assert reserved == need.parts * 90_000_000
    assert need.pixels(seen) == need.parts * info.n_pixels


@pytest.mark.parametrize("large", [False, True])
def test_a_damaged_jpeg_is_decoded_in_a_process_which_holds_the_memory_that_it_takes(
    large: bool,
) -> None:
    pool, data = Pool(), damaged_jpeg()
    plain = len(data) + 3 * (pixels := codec.probe(data, max_pixels=MOST).n_pixels)
    noted: list[int] = []

    def memory(seen: Seen) -> int:
        noted.append(seen.memory)
        return 90 << 20 if large else 1

    async def scenario() -> None:
        decoder = ImageDecoder(
            cast(Any, None), PixelBudget(10**9), cast(DecoderPool, pool), MOST, 1
        )
        source = decoder.decoded(
            Blob.of(data), cast(ImageContext, Context()), lambda _seen: 1, memory
        )
        async with source as held:
            assert (held.height * held.width, held.channels) == (pixels, 3)
        decoder.close()

    asyncio.run(scenario())
    assert pool.unasked
    assert plain in noted
    assert max(noted[1:]) >= codec.open_file(data, max_pixels=MOST).memory > plain


def test_images_in_the_background_keep_no_other_image_waiting_for_a_thread() -> None:
    pool, blocked = Pool(), Event()

    async def scenario() -> None:
        decoder = ImageDecoder(
            cast(Any, None), PixelBudget(10**9), cast(DecoderPool, pool), MOST, 1
        )
        behind = asyncio.create_task(decoder.in_thread(blocked.wait, 60.0, background=True))
        front = decoder.decoded(
            Blob.of(jpeg()), cast(ImageContext, Context()), lambda _seen: 1, lambda _seen: 1
        )
        async with asyncio.timeout(30), front:
            pass
        blocked.set()
        front = decoder.decoded(
            Blob.of(jpeg()),
            cast(ImageContext, Context(in_background=True)),
            lambda _seen: 1,
            lambda _seen: 1,
        )
        async with asyncio.timeout(30), front:
            pass
        assert await behind
        decoder.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "least", "running", "threads", "processes"),
    [
        (damaged_jpeg(), 1 << 30, True, 2, 1),  # its header, then the damage
        (damaged_jpeg(), 0, True, 1, 1),  # no thread decodes it again
        (jpeg(), 1 << 30, True, 2, 0),
        (png(), 1 << 30, True, 0, 2),
        (png(), 1 << 30, False, 2, 0),
    ],
)
def test_a_file_is_asked_for_again_only_when_it_was_granted_too_little(
    data: bytes,
    least: int,
    running: bool,
    threads: int,
    processes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, calls = Pool(), list[object]()
    pool.running = running

    async def scenario() -> None:
        decoder = ImageDecoder(
            cast(Any, None), PixelBudget(10**9), cast(DecoderPool, pool), MOST, 1
        )
        in_thread = decoder.in_thread

        async def noted(function: Any, *args: object, background: bool = False) -> Any:
            calls.append(function)
            return await in_thread(function, *args, background=background)

        monkeypatch.setattr(decoder, "in_thread", noted)
        context = cast(ImageContext, Context())
        async with decoder.decoded(Blob.of(data), context, lambda _seen: 1, lambda _seen: least):
            pass
        decoder.close()

    asyncio.run(scenario())
    assert (len(calls), len(pool.unasked)) == (threads, processes)
