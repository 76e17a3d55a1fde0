"""Decoder processes: whatever happens to one is the error of its own image; it is replaced."""

import asyncio
import contextlib
import functools
import io
import os
import signal
import socket
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image as PillowImage

from app.decoders import Bounds, DecoderPool, Encode, Seen
from app.decoders.memory import AREA_SIZE
from app.decoders.messages import Descriptor, Ready
from app.decoders.process import DecoderProcess, ForkServer, Gone
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
from tests.chaos.hostile.more_images import avif_lying_size
from tests.decoder_pool import LIMITS, run
from tests.pictures import as_image, png
from tests.server import PATIENCE, gone


@functools.cache
def slow() -> bytes:
    """Return a PNG that takes some 20 ms to decode."""
    return drawn(side=1900, compress_level=1)


def drawn(format_: str = "PNG", side: int = 32, **options: object) -> bytes:
    rng = np.random.default_rng(side)
    picture = PillowImage.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8))
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


NONE = Bounds(0, 0, 0, 0.0)
"""The bounds that no image is within."""


async def pixels(pool: DecoderPool, data: bytes) -> np.ndarray:
    found = await pool.decode(data, len(data))
    assert isinstance(found, codec.Decoded)
    return as_image(found.image).pixels


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG"])
def test_a_process_decodes_to_the_very_bytes_of_a_thread(format_: str) -> None:
    data = (
        drawn(format_, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0") if format_ == "PNG" else drawn(format_)
    )
    expected = codec.decode(data, max_pixels=LIMITS.max_pixels)

    async def test(pool: DecoderPool) -> None:
        found = await pool.decode(data, len(data))
        assert isinstance(found, codec.Decoded)
        assert as_image(found.image).pixels.tobytes() == as_image(expected.image).pixels.tobytes()
        assert (found.info, found.copyright, found.exif) == (
            expected.info,
            expected.copyright,
            expected.exif,
        )
        as_image(found.image).pixels[0, 0] = 1  # theirs alone: filters may write there

    run(test)


def test_a_file_on_disk_is_read_by_its_descriptor(tmp_path: Path) -> None:
    data = drawn()
    (tmp_path / "file").write_bytes(data)

    async def test(pool: DecoderPool) -> None:
        with (tmp_path / "file").open("rb") as file:
            found = await pool.decode(file.fileno(), len(data))
        assert isinstance(found, codec.Decoded)

    run(test)


def test_an_image_that_is_not_wanted_after_its_header_is_not_decoded() -> None:
    data = drawn(side=40)

    async def test(pool: DecoderPool) -> None:
        found = await pool.decode(data, len(data), NONE)
        assert isinstance(found, Seen)
        assert (found.info.height, found.info.width) == (40, 40)
        assert found.cost > 0
        assert (await pixels(pool, data)).shape == (40, 40, 3)

    assert not run(test).ended


@pytest.mark.parametrize("colour", [True, False])
def test_a_process_describes_a_file_as_a_thread_does(colour: bool) -> None:
    data = drawn("JPEG", icc_profile=b"no profile")
    expected = codec.open_file(data, max_pixels=LIMITS.max_pixels).describe(colour=colour)

    async def test(pool: DecoderPool) -> None:
        assert await pool.describe(data, len(data), colour=colour) == expected

    assert not run(test).ended


def test_the_colour_of_an_image_that_is_not_wanted_after_its_header_is_not_looked_for() -> None:
    data = drawn(side=40)

    async def test(pool: DecoderPool) -> None:
        refused = await pool.describe(data, len(data), NONE, colour=True)
        assert isinstance(refused, Seen)
        found = await pool.describe(data, len(data), NONE, colour=False)
        assert isinstance(found, codec.Description)  # which needs no pixels

    assert not run(test).ended


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (drawn()[:-40], Undecodable),
        (b"nothing that is known", UnsupportedMedia),
        (drawn(side=2100, compress_level=1), TooManyPixels),
    ],
)
def test_errors_of_the_file_cross_over_as_they_are(data: bytes, error: type[ServiceError]) -> None:
    with pytest.raises(error) as expected:
        codec.decode(data, max_pixels=LIMITS.max_pixels)

    async def test(pool: DecoderPool) -> None:
        with pytest.raises(error) as found:
            await pixels(pool, data)
        assert found.value.detail == expected.value.detail

    assert not run(test).ended


async def both(first: Awaitable[Pixels], second: Awaitable[Pixels]) -> list[Pixels | BaseException]:
    """Wait for both, and return the pixels or the error of each."""
    return [*await asyncio.gather(first, second, return_exceptions=True)]


def test_an_image_over_its_cpu_time_is_killed_and_its_neighbour_is_answered() -> None:
    fast = drawn(side=8)

    async def test(pool: DecoderPool) -> None:
        killed, answered = await both(pixels(pool, slow()), pixels(pool, fast))
        assert isinstance(killed, Undecodable)
        assert "more CPU time" in killed.detail
        assert not isinstance(answered, BaseException)

    assert run(test, replace(LIMITS, seconds=0.02)).ended == {"cpu": 1}


def test_an_image_that_needs_memory_its_header_does_not_explain_is_refused() -> None:
    async def test(pool: DecoderPool) -> None:
        with pytest.raises(Undecodable):
            await pixels(pool, avif_lying_size())
        assert (await pixels(pool, drawn())).shape == (32, 32, 3)

    run(test)


def test_the_canvas_of_a_large_webp_may_be_allocated_when_it_is_opened() -> None:
    file = io.BytesIO()
    PillowImage.new("RGB", (3900, 3900)).save(file, "WEBP", lossless=True, method=0)

    async def test(pool: DecoderPool) -> None:
        assert (await pixels(pool, file.getvalue())).shape == (3900, 3900, 3)

    run(test, replace(LIMITS, max_pixels=16_000_000))


def test_a_request_that_ends_early_ends_its_process() -> None:
    async def test(pool: DecoderPool) -> None:
        await pixels(pool, drawn())
        (idle,) = pool._idle
        task = asyncio.create_task(pixels(pool, slow()))
        while pool._idle or not pool.busy:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.wait_for(idle.ended, PATIENCE) == signal.SIGKILL
        assert gone(idle.pid)
        assert (await pixels(pool, drawn())).shape == (32, 32, 3)

    assert run(test).ended == {"cancelled": 1}


def test_a_process_that_died_while_it_waited_costs_no_image() -> None:
    async def test(pool: DecoderPool) -> None:
        await pixels(pool, drawn())
        (idle,) = pool._idle
        os.kill(idle.pid, signal.SIGKILL)
        await asyncio.wait_for(idle.ended, PATIENCE)
        assert (await pixels(pool, drawn())).shape == (32, 32, 3)

    assert run(test).ended == {"crash": 1}


@pytest.mark.slow
def test_twenty_processes_that_die_in_a_row_leave_the_next_image_alone() -> None:
    async def test(pool: DecoderPool) -> None:
        for _ in range(20):
            with pytest.raises(Undecodable):
                await pixels(pool, slow())
        assert (await pixels(pool, drawn(side=8))).shape == (8, 8, 3)

    assert run(test, replace(LIMITS, seconds=0.02)).ended == {"cpu": 20}


def test_the_end_of_the_fork_server_is_survived() -> None:
    async def test(pool: DecoderPool) -> None:
        await pixels(pool, drawn())
        assert pool._server is not None
        (idle,) = pool._idle
        pool._server._process.kill()
        await asyncio.wait_for(idle.ended, PATIENCE)
        assert (await pixels(pool, drawn())).shape == (32, 32, 3)

    run(test)


def test_nothing_is_left_when_the_pool_closes() -> None:
    found: list[int] = []

    async def test(pool: DecoderPool) -> None:
        await asyncio.gather(*(pixels(pool, drawn(side=500)) for _ in range(4)))
        assert pool._server is not None
        found.extend(each.pid for each in pool._idle)
        found.append(pool._server._process.pid)

    before = len(os.listdir("/proc/self/fd"))
    run(test)
    assert len(found) == 3
    assert all(map(gone, found))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("slow", [True, False])
def test_slow_images_leave_one_process_to_the_others(slow: bool) -> None:
    data = drawn(side=8)

    async def test(pool: DecoderPool) -> None:
        async with pool._slow:  # as an image does that is decoded now
            decoding = asyncio.create_task(pool.decode(data, len(data), slow=slow))
            done, _ = await asyncio.wait((decoding,), timeout=0.5 if slow else PATIENCE)
            assert bool(done) is not slow
        await decoding

    run(test)


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) << 10


def test_a_process_keeps_nothing_of_the_files_it_refused() -> None:
    refused = b"\xff\xd8\xff\xe0\0\4\0\0" + b"\xff\xfe\0\2" * (1 << 20)
    held: list[tuple[int, int]] = []

    async def test(pool: DecoderPool) -> None:
        for _ in range(12):
            with pytest.raises(Undecodable):
                await pool.decode(refused, len(refused))
            held.append((pool._idle[0].pid, resident(pool._idle[0].pid)))

    run(test)
    assert len({pid for pid, _ in held}) == 1
    assert held[-1][1] - held[1][1] < 2 * len(refused)


def test_a_process_is_replaced_after_many_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.decoders.pool.IMAGES_PER_PROCESS", 2)

    async def test(pool: DecoderPool) -> None:
        for _ in range(5):
            await pixels(pool, drawn())

    assert run(test).ended == {"replaced": 2}


async def encoded(
    pool: DecoderPool, image: Pixels, encoding: codec.Encoding, seconds: float = 60.0
) -> bytes:
    height, width, channels = image.shape
    shape = (height, width, channels)
    task = Encode(shape, codec.ImageFormat.PNG, encoding, "us", None, seconds)
    return await pool.encode(task, memoryview(image.data).cast("B"), None)


@pytest.mark.parametrize(("height", "level"), [(50, 9), (3000, 0)])
def test_a_process_encodes_to_the_very_bytes_of_a_thread(height: int, level: int) -> None:
    """The larger pixels and their file do not fit into the shared area."""
    image = np.random.default_rng(1).integers(0, 256, (height, 1000, 3), np.uint8)
    encoding = codec.Encoding(png_level=level)
    expected = codec.encode(Image(image), codec.ImageFormat.PNG, encoding, copyright="us")

    async def test(pool: DecoderPool) -> None:
        assert await encoded(pool, image, encoding) == expected

    run(test)


def test_encoding_over_its_cpu_time_is_ended() -> None:
    image = np.random.default_rng(1).integers(0, 256, (1500, 1500, 3), np.uint8)

    async def test(pool: DecoderPool) -> None:
        with pytest.raises(Unprocessable, match="CPU time"):
            await encoded(pool, image, codec.Encoding(png_level=9), 0.05)

    assert run(test).ended == {"cpu": 1}


@pytest.mark.parametrize("side", [1400, 1900])
def test_large_files_and_large_images_cross_over_as_they_are(side: int) -> None:
    """The smaller one fits into the shared area, the larger one does not."""
    data = drawn("BMP", side=side)
    expected = codec.decode(data, max_pixels=LIMITS.max_pixels)

    async def test(pool: DecoderPool) -> None:
        found = await pool.decode(data, len(data))
        assert isinstance(found, codec.Decoded)
        assert np.array_equal(as_image(found.image).pixels, as_image(expected.image).pixels)

    assert (side * side * 3 <= AREA_SIZE) == (side == 1400)
    assert not run(test, replace(LIMITS, max_file=32 << 20)).ended


def test_the_metadata_of_a_large_image_comes_behind_its_pixels() -> None:
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\0"
    data = drawn(side=1900, compress_level=0, exif=exif)
    expected = codec.decode(data, max_pixels=LIMITS.max_pixels)

    async def test(pool: DecoderPool) -> None:
        found = await pool.decode(data, len(data))
        assert isinstance(found, codec.Decoded)
        assert np.array_equal(as_image(found.image).pixels, as_image(expected.image).pixels)
        assert found.exif == expected.exif
        assert found.exif

    run(test, replace(LIMITS, max_file=32 << 20))


def test_an_image_that_may_have_alpha_has_a_bound_of_its_own() -> None:
    data = png(0, 40, 40, "RGBA")

    async def test(pool: DecoderPool) -> None:
        refused = await pool.decode(data, len(data), Bounds(1600, 1599, 1 << 30, 9.0))
        assert isinstance(refused, Seen)
        (idle,) = pool._idle
        assert idle.area.used < 40 * 40 * 4  # the file was there, and no pixels
        found = await pool.decode(data, len(data), Bounds(0, 1600, 1 << 30, 9.0))
        assert isinstance(found, codec.Decoded)

    run(test)


def test_pixels_stay_as_they_were_when_their_process_decodes_other_images() -> None:
    first, second = drawn(side=60), drawn(side=61)
    expected = as_image(codec.decode(first, max_pixels=LIMITS.max_pixels).image).pixels

    async def test(pool: DecoderPool) -> None:
        found = await pixels(pool, first)
        await pixels(pool, second)
        assert len(pool._idle) == 1
        assert np.array_equal(found, expected)

    run(test)


def test_a_frame_that_nothing_asked_for_ends_its_process() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    answer = msgspec.msgpack.encode(Ready())

    async def test(pool: DecoderPool) -> None:
        await pixels(pool, drawn())
        real = pool._idle.pop()
        fake = DecoderProcess(ours, real.pid, Descriptor(os.pidfd_open(real.pid)), real.area)
        fake.ended = real.ended
        theirs.send(answer)
        assert (await fake.receive())[0] == Ready()
        before = len(os.listdir("/proc/self/fd"))
        socket.send_fds(theirs, [answer], [0])
        while not fake._broken:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) == before  # what came beside it was closed
        pool._idle.append(fake)
        assert (await pixels(pool, drawn())).shape == (32, 32, 3)
        assert await asyncio.wait_for(real.ended, PATIENCE) == signal.SIGKILL
        assert gone(real.pid)
        real.close()

    with theirs:
        assert run(test).ended == {"crash": 1}


def test_what_libraries_print_of_a_file_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    PillowImage.fromarray(noise).convert("1").save(file, "TIFF", compression="group4")
    data = file.getvalue()
    data = data[:28] + bytes(600) + data[628:]

    async def test(pool: DecoderPool) -> None:
        with contextlib.suppress(Undecodable):
            await pixels(pool, data)

    run(test)
    assert capfd.readouterr() == ("", "")
    with contextlib.suppress(Undecodable):
        codec.decode(data, max_pixels=10_000)
    assert capfd.readouterr().err  # which is what a thread would have let through


def test_a_decoder_that_answers_nonsense_is_ended() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)

    async def test(pool: DecoderPool) -> None:
        await pixels(pool, drawn())
        real = pool._idle.pop()
        fake = DecoderProcess(ours, real.pid, Descriptor(os.pidfd_open(real.pid)), real.area)
        fake.ended = real.ended
        pool._idle.append(fake)
        theirs.send(b"\xc1 nonsense")
        with pytest.raises(Undecodable):
            await pixels(pool, drawn())
        assert await asyncio.wait_for(real.ended, PATIENCE) == signal.SIGKILL
        assert gone(real.pid)
        real.close()

    with theirs:
        run(test)


def test_the_header_comes_with_the_memory_that_decoding_takes() -> None:
    data = drawn(side=40)

    async def test(pool: DecoderPool) -> None:
        found = await pool.decode(data, len(data), NONE)
        assert isinstance(found, Seen)
        assert found.memory == codec.decode_memory(found.info, len(data))

    run(test)


def test_where_no_process_can_be_started_each_image_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(*_limits: int) -> ForkServer:
        raise Gone("there is no memory")

    async def test(pool: DecoderPool) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(ForkServer, "start", refused)
            for _ in range(12):
                with pytest.raises(Unavailable):
                    await pixels(pool, drawn())
        assert (await pixels(pool, drawn())).shape == (32, 32, 3)

    assert run(test).ended == {"start": 12}
