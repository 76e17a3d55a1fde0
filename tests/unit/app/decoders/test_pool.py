"""Decoder processes: whatever happens to one is the error of its own image; it is replaced."""

import asyncio
import contextlib
import functools
import io
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from app.decoders import Bounds, DecoderPool, Encode, Seen, Wanted
from app.decoders.memory import KEPT
from app.decoders.pool import DecoderProcess
from models import codec
from models.domain.errors import (
    ServiceError,
    TooManyPixels,
    Unavailable,
    Undecodable,
    Unprocessable,
    UnsupportedMedia,
)
from models.domain.image import Image, Pixels
from tests.decoder_pool import LIMITS, drawn, pool_of
from tests.hostile import avif_lying_size
from tests.pictures import as_image, png
from tests.server import PATIENCE, gone


@functools.cache
def slow() -> bytes:
    """Return a PNG that takes some 20 ms to decode."""
    return drawn(side=1900, compress_level=1)


EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\0"

NONE = Bounds(0, 0, 0, 0.0)
"""The bounds that no image is within."""


async def pixels(pool: DecoderPool, data: bytes) -> np.ndarray:
    found = await pool.decode(data, len(data))
    assert isinstance(found, codec.Decoded)
    return as_image(found.image).pixels


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG"])
async def test_a_process_decodes_to_the_very_bytes_of_a_thread(
    pool: DecoderPool, format_: str
) -> None:
    data = drawn(format_, exif=EXIF) if format_ == "PNG" else drawn(format_)
    expected = codec.decode(data, max_pixels=LIMITS.max_pixels)
    found = await pool.decode(data, len(data))
    assert isinstance(found, codec.Decoded)
    assert as_image(found.image).pixels.tobytes() == as_image(expected.image).pixels.tobytes()
    assert (found.info, found.copyright, found.exif) == (
        expected.info,
        expected.copyright,
        expected.exif,
    )
    as_image(found.image).pixels[0, 0] = 1  # theirs alone: filters may write there


async def test_a_file_on_disk_is_read_by_its_descriptor(pool: DecoderPool, tmp_path: Path) -> None:
    data = drawn()
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        found = await pool.decode(file.fileno(), len(data))
    assert isinstance(found, codec.Decoded)


async def test_an_image_that_is_not_wanted_after_its_header_is_not_decoded(
    pool: DecoderPool,
) -> None:
    data = drawn(side=40)
    found = await pool.decode(data, len(data), NONE)
    assert isinstance(found, Seen)
    assert (found.info.height, found.info.width) == (40, 40)
    assert found.cost > 0
    assert found.memory == codec.decode_memory(found.info, len(data))
    assert (await pixels(pool, data)).shape == (40, 40, 3)
    assert not pool.ended


@pytest.mark.parametrize("wanted", [Wanted.COLOUR, Wanted.DESCRIPTION])
async def test_a_process_describes_a_file_as_a_thread_does(
    pool: DecoderPool, wanted: Wanted
) -> None:
    data, colour = drawn("JPEG", icc_profile=b"no profile"), wanted is Wanted.COLOUR
    expected = codec.open_file(data, max_pixels=LIMITS.max_pixels).describe(colour=colour)
    assert await pool.decode(data, len(data), wanted=wanted) == expected
    found = await pool.decode(data, len(data), NONE, wanted)
    assert isinstance(found, Seen if colour else codec.Description)  # a colour needs the pixels
    assert not pool.ended


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (drawn()[:-40], Undecodable),
        (b"nothing that is known", UnsupportedMedia),
        (drawn(side=2100, compress_level=1), TooManyPixels),
    ],
)
async def test_errors_of_the_file_cross_over_as_they_are(
    pool: DecoderPool, data: bytes, error: type[ServiceError]
) -> None:
    with pytest.raises(error) as expected:
        codec.decode(data, max_pixels=LIMITS.max_pixels)
    with pytest.raises(error) as found:
        await pixels(pool, data)
    assert found.value.detail == expected.value.detail
    assert not pool.ended


async def both(first: Awaitable[Pixels], second: Awaitable[Pixels]) -> list[Pixels | BaseException]:
    """Wait for both, and return the pixels or the error of each."""
    return [*await asyncio.gather(first, second, return_exceptions=True)]


async def test_an_image_over_its_cpu_time_is_killed_and_its_neighbour_is_answered() -> None:
    fast = drawn(side=8)

    async with pool_of(replace(LIMITS, seconds=0.02)) as pool:
        killed, answered = await both(pixels(pool, slow()), pixels(pool, fast))
        assert isinstance(killed, Undecodable)
        assert "more CPU time" in killed.detail
        assert not isinstance(answered, BaseException)
        assert pool.ended == {"cpu": 1}


@pytest.mark.slow  # the file takes 300 MB to make
async def test_an_image_that_needs_memory_its_header_does_not_explain_is_refused(
    pool: DecoderPool,
) -> None:
    with pytest.raises(Undecodable):
        await pixels(pool, avif_lying_size(6000))
    assert (await pixels(pool, drawn())).shape == (32, 32, 3)


async def test_the_canvas_of_a_large_webp_may_be_allocated_when_it_is_opened() -> None:
    file = io.BytesIO()
    PillowImage.new("RGB", (3900, 3900)).save(file, "WEBP", lossless=True, method=0)

    async with pool_of(replace(LIMITS, max_pixels=16000000)) as pool:
        assert (await pixels(pool, file.getvalue())).shape == (3900, 3900, 3)


async def ended(pid: int) -> None:
    """Wait until a process has ended."""
    async with asyncio.timeout(PATIENCE):
        while not gone(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_request_that_ends_early_ends_its_process(pool: DecoderPool) -> None:
    await pixels(pool, drawn())
    (idle,) = pool._idle
    task = asyncio.create_task(pixels(pool, slow()))
    while pool._idle or not pool.busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(idle.pid)
    assert (await pixels(pool, drawn())).shape == (32, 32, 3)
    assert pool.ended == {"cancelled": 1}


@pytest.mark.parametrize("fork_server", [True, False])
async def test_a_process_that_died_while_it_waited_costs_no_image(
    pool: DecoderPool, fork_server: bool
) -> None:
    await pixels(pool, drawn())
    (idle,), server = pool._idle, pool._server
    assert server is not None
    os.kill(server.process.pid if fork_server else idle.pid, signal.SIGKILL)
    await ended(idle.pid)
    assert (await pixels(pool, drawn())).shape == (32, 32, 3)
    assert sum(pool.ended.values()) == 1


@pytest.mark.parametrize("slow", [True, False])
async def test_slow_images_leave_one_process_to_the_others(pool: DecoderPool, slow: bool) -> None:
    data = drawn(side=8)
    async with pool._slow:  # as an image does that is decoded now
        decoding = asyncio.create_task(pool.decode(data, len(data), slow=slow))
        done, _ = await asyncio.wait((decoding,), timeout=0.5 if slow else PATIENCE)
        assert bool(done) is not slow
    await decoding


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) << 10


async def test_a_process_keeps_nothing_of_the_files_it_refused(pool: DecoderPool) -> None:
    refused = b"\xff\xd8\xff\xe0\0\4\0\0" + b"\xff\xfe\0\2" * (1 << 18)
    held: list[tuple[int, int]] = []
    for _ in range(12):
        with pytest.raises(Undecodable):
            await pool.decode(refused, len(refused))
        held.append((pool._idle[0].pid, resident(pool._idle[0].pid)))
    assert len({pid for pid, _ in held}) == 1
    assert held[-1][1] - held[1][1] < 5 * len(refused)


async def test_a_process_is_replaced_after_many_images(
    pool: DecoderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.decoders.pool.IMAGES_PER_PROCESS", 2)
    for _ in range(5):
        await pixels(pool, drawn())
    assert pool.ended == {"replaced": 2}


async def encoded(
    pool: DecoderPool, image: Pixels, encoding: codec.Encoding, seconds: float = 60.0
) -> bytes:
    height, width, channels = image.shape
    shape = (height, width, channels)
    task = Encode(shape, codec.ImageFormat.PNG, encoding, "us", None, seconds)
    return await pool.encode(task, image.copy(), None)


@pytest.mark.parametrize(("height", "level"), [(50, 9), (3000, 0)])
async def test_a_process_encodes_to_the_very_bytes_of_a_thread(
    pool: DecoderPool, height: int, level: int
) -> None:
    image = np.random.default_rng(1).integers(0, 256, (height, 1000, 3), np.uint8)
    encoding = codec.Encoding(png_level=level)
    expected = codec.encode(Image(image), codec.ImageFormat.PNG, encoding, copyright="us")
    assert await encoded(pool, image, encoding) == expected


async def test_encoding_over_its_cpu_time_is_ended(pool: DecoderPool) -> None:
    image = np.random.default_rng(1).integers(0, 256, (1500, 1500, 3), np.uint8)
    with pytest.raises(Unprocessable, match="CPU time"):
        await encoded(pool, image, codec.Encoding(png_level=9), 0.05)
    assert pool.ended == {"cpu": 1}


async def test_an_image_that_may_have_alpha_has_a_bound_of_its_own(pool: DecoderPool) -> None:
    data = png(0, 40, 40, "RGBA")
    refused = await pool.decode(data, len(data), Bounds(1600, 1599, 1 << 30, 9.0))
    assert isinstance(refused, Seen)
    (idle,) = pool._idle
    assert idle.area.used < 40 * 40 * 4  # the file was there, and no pixels
    found = await pool.decode(data, len(data), Bounds(0, 1600, 1 << 30, 9.0))
    assert isinstance(found, codec.Decoded)


async def test_what_libraries_print_of_a_file_goes_nowhere(
    pool: DecoderPool, capfd: pytest.CaptureFixture[str]
) -> None:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    PillowImage.fromarray(noise).convert("1").save(file, "TIFF", compression="group4")
    data = file.getvalue()
    data = data[:28] + bytes(600) + data[628:]
    with contextlib.suppress(Undecodable):
        await pixels(pool, data)
    assert capfd.readouterr() == ("", "")
    with contextlib.suppress(Undecodable):
        codec.decode(data, max_pixels=10_000)
    assert capfd.readouterr().err  # which is what a thread would have let through


async def test_where_no_process_can_be_started_each_image_is_refused(
    pool: DecoderPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_arguments: object, **_options: object) -> None:
        raise OSError("there is no memory")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refused)
        for _ in range(12):
            with pytest.raises(Unavailable):
                await pixels(pool, drawn())
    assert (await pixels(pool, drawn())).shape == (32, 32, 3)
    assert pool.ended == {"start": 12}


async def test_nothing_is_left_when_the_pool_closes() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with pool_of() as pool:
        await asyncio.gather(*(pixels(pool, drawn(side=500)) for _ in range(4)))
        assert pool._server is not None
        found = [*(each.pid for each in pool._idle), pool._server.process.pid]
    assert len(found) == 3
    assert all(map(gone, found))
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("side", [1400, 1900])
@pytest.mark.parametrize(
    ("format_", "options"), [("BMP", {}), ("PNG", {"compress_level": 0, "exif": EXIF})]
)
async def test_large_files_and_their_metadata_cross_over_as_they_are(
    side: int, format_: str, options: dict[str, object]
) -> None:
    data = drawn(format_, side=side, **options)
    expected = codec.decode(data, max_pixels=LIMITS.max_pixels)
    async with pool_of(replace(LIMITS, max_file=32 << 20)) as pool:
        found = await pool.decode(data, len(data))
        assert isinstance(found, codec.Decoded)
        assert np.array_equal(as_image(found.image).pixels, as_image(expected.image).pixels)
        assert found.exif == expected.exif
    assert (side * side * 3 <= KEPT) == (side == 1400)


@pytest.mark.parametrize("idle", [True, False], ids=["not_asked_for", "nonsense"])
async def test_a_decoder_that_answers_what_no_decoder_answers_is_ended(
    pool: DecoderPool, idle: bool
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    await pixels(pool, drawn())
    real = pool._idle.pop()
    pool._idle.append(DecoderProcess(ours, real.area))
    with theirs:
        theirs.send(b"\xc1 nonsense")
        if idle:
            await asyncio.sleep(0.01)
            assert (await pixels(pool, drawn())).shape == (32, 32, 3)
        else:
            with pytest.raises(Undecodable):
                await pixels(pool, drawn())
    assert pool.ended == {"crash": 1}
    real.close()
    await ended(real.pid)
