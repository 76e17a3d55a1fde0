"""Decoder processes: whatever happens to one is the error of its own image; it is replaced."""

import asyncio
import functools
import io
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from app.decoders.memory import SMALL
from app.decoders.messages import Bounds, Encode, Seen, Wanted
from app.decoders.pool import DecoderPool, DecoderProcess
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
from tests.hostile import avif_lying_size, large_tile
from tests.pictures import HEIF, as_image, png
from tests.server import PATIENCE, gone


@pytest.fixture(scope="module", autouse=True)
def _patient() -> Iterator[None]:
    """Let processes take any time to start and to end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.decoders.pool.START_WITHIN", PATIENCE)
        patch.setattr("app.decoders.pool.END_WITHIN", PATIENCE)
        yield


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[DecoderPool]:
    """Return the pool of tests that end no process: to start a pool takes a third of a second."""
    async with pool_of(replace(LIMITS, max_file=32 << 20)) as made:
        yield made


@pytest.fixture(scope="module")
async def kept() -> AsyncIterator[DecoderPool]:
    """Return a pool that keeps the fork server of tests: to start it takes half a second."""
    async with pool_of() as made:
        yield made


@pytest.fixture
async def pool(kept: DecoderPool) -> AsyncIterator[DecoderPool]:
    """Return a pool of two processes, which is closed after the test."""
    made = DecoderPool(LIMITS)
    made._server = kept._server
    yield made
    kept._server, made._server = made._server, None
    await made.aclose()


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


FORMATS = ("PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG")
STORED = {"compress_level": 0, "exif": EXIF}


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    ("format_", "side", "options"),
    [
        *((each, 32, {}) for each in FORMATS),
        ("PNG", 32, {"exif": EXIF}),
        *(("BMP", side, {}) for side in (1400, 1900)),
        *(("PNG", side, STORED) for side in (1400, 1900)),  # their pixels take less than KEPT, more
    ],
)
async def test_a_process_decodes_to_the_very_bytes_of_a_thread(
    shared: DecoderPool, tmp_path: Path, format_: str, side: int, options: Any, on_disk: bool
) -> None:
    data = drawn(format_, side, **options)
    expected = codec.decode(data, max_pixels=LIMITS.max_pixels)
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        found = await shared.decode(file.fileno() if on_disk else data, len(data))
    assert isinstance(found, codec.Decoded)
    assert np.array_equal(as_image(found.image).pixels, as_image(expected.image).pixels)
    about = expected.info, expected.copyright, expected.exif
    assert (found.info, found.copyright, found.exif) == about
    as_image(found.image).pixels[0, 0] = 1  # theirs alone: filters may write there


@pytest.mark.parametrize("name", ["iphone.heic", "samsung.heic", "canon.hif", "alpha.heic"])
async def test_a_process_decodes_a_heif_without_a_thread_of_the_codec(
    shared: DecoderPool, name: str
) -> None:
    data = (HEIF / name).read_bytes()
    expected = as_image(codec.decode(data, max_pixels=LIMITS.max_pixels).image)
    assert np.array_equal(await pixels(shared, data), expected.pixels)
    assert not shared.ended


async def test_an_image_that_is_not_wanted_after_its_header_is_not_decoded(
    shared: DecoderPool,
) -> None:
    data = drawn(side=40)
    found = await shared.decode(data, len(data), NONE)
    assert isinstance(found, Seen)
    assert (found.info.height, found.info.width) == (40, 40)
    assert found.cost > 0
    assert found.memory == codec.decode_memory(found.info, len(data))
    assert (await pixels(shared, data)).shape == (40, 40, 3)
    assert not shared.ended


@pytest.mark.parametrize("wanted", [*Wanted][2:])
async def test_a_process_describes_a_file_as_a_thread_does(
    shared: DecoderPool, wanted: Wanted
) -> None:
    data, header = drawn("JPEG", icc_profile=b"no profile"), wanted is Wanted.DESCRIPTION
    parts = {} if header else {wanted.value: True}
    expected = codec.open_file(data, max_pixels=LIMITS.max_pixels).describe(**parts)
    assert await shared.decode(data, len(data), wanted=wanted) == expected
    found = await shared.decode(data, len(data), NONE, wanted)
    assert isinstance(found, codec.Description if header else Seen)  # the others need the pixels
    assert not shared.ended


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (drawn()[:-40], Undecodable),
        (b"nothing that is known", UnsupportedMedia),
        (drawn(side=2100, compress_level=1), TooManyPixels),
    ],
)
async def test_errors_of_the_file_cross_over_as_they_are(
    shared: DecoderPool, data: bytes, error: type[ServiceError]
) -> None:
    with pytest.raises(error) as expected:
        codec.decode(data, max_pixels=LIMITS.max_pixels)
    with pytest.raises(error) as found:
        await pixels(shared, data)
    assert found.value.detail == expected.value.detail
    assert not shared.ended


async def test_an_image_over_its_cpu_time_is_killed_and_its_neighbour_is_answered(
    pool: DecoderPool,
) -> None:
    pool.limits = replace(LIMITS, seconds=0.02)
    answering = asyncio.create_task(pixels(pool, drawn(side=8)))
    with pytest.raises(Undecodable, match="more CPU time"):
        await pixels(pool, slow())
    await answering
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
    task = await begun(pool, pixels(pool, slow()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(idle.pid)
    assert (await pixels(pool, drawn())).shape == (32, 32, 3)
    assert pool.ended == {"cancelled": 1}


@pytest.mark.parametrize("slow", [True, False])
async def test_slow_images_leave_one_process_to_the_others(pool: DecoderPool, slow: bool) -> None:
    data = drawn(side=8)
    async with pool._slow:  # as an image does that is decoded now
        decoding = asyncio.create_task(pool.decode(data, len(data), slow=slow))
        done, _ = await asyncio.wait((decoding,), timeout=0.5 if slow else PATIENCE)
        assert bool(done) is not slow
    await decoding


def of_process(pid: int, file: str) -> str:
    """Return a file of a process in /proc."""
    return Path(f"/proc/{pid}/{file}").read_text()


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(of_process(pid, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
    return (await pool.encode(task, image.copy(), None))[0]


@pytest.mark.parametrize(("height", "level"), [(50, 9), (3000, 0)])
async def test_a_process_encodes_to_the_very_bytes_of_a_thread(
    shared: DecoderPool, height: int, level: int
) -> None:
    image = np.random.default_rng(1).integers(0, 256, (height, 1000, 3), np.uint8)
    encoding = codec.Encoding(png_level=level)
    expected = codec.encode(Image(image), codec.ImageFormat.PNG, encoding, copyright="us")
    assert await encoded(shared, image, encoding) == expected


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


async def test_where_no_process_can_be_started_each_image_is_refused(
    pool: DecoderPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_arguments: object, **_options: object) -> None:
        raise OSError("there is no memory")

    await pool.aclose()  # with the fork server of other tests
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


def stopped(pool: DecoderPool) -> DecoderProcess:
    """Return the only process of a pool, which will not answer."""
    (idle,) = pool._idle
    os.kill(idle.pid, signal.SIGSTOP)
    return idle


async def begun(pool: DecoderPool, work: Awaitable[object]) -> "asyncio.Future[object]":
    """Begin work, and return when it has been handed over to the only process."""
    task = asyncio.ensure_future(work)
    while pool._idle or not pool.busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("fork_server", [True, False])
@pytest.mark.parametrize("idle", [True, False])
async def test_a_process_that_is_killed_costs_no_image(
    pool: DecoderPool, idle: bool, fork_server: bool
) -> None:
    await pool.start()
    first, server = stopped(pool), pool._server
    assert server is not None
    work = None if idle else await begun(pool, pixels(pool, drawn()))
    os.kill(server.process.pid if fork_server else first.pid, signal.SIGKILL)
    await ended(first.pid)
    await (work or pixels(pool, drawn()))
    assert pool.ended.total() == 1


async def test_processes_that_end_soon_after_their_fork_server_cost_no_image(
    pool: DecoderPool,
) -> None:
    await pool.start()
    first, server = stopped(pool), pool._server
    assert server is not None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    work = await begun(pool, pixels(pool, drawn()))
    pool._idle.append(DecoderProcess(ours, first.area))
    with theirs:
        pool._observe = lambda _reason: theirs.close()  # it ends a moment after the first
        os.kill(server.process.pid, signal.SIGKILL)
        await work
    assert pool.ended == {"killed": 1, "crash": 1}


@pytest.mark.parametrize(
    ("hangs", "reason"),
    [(True, "the process did not start"), (False, "the fork server ended")],
)
async def test_a_fork_server_that_hangs_or_ends_while_an_image_waits_for_it_is_replaced(
    pool: DecoderPool,
    hangs: bool,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await pool.start()
    pool._idle.pop().close()
    server = pool._server
    assert server is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    if hangs:
        monkeypatch.setattr("app.decoders.pool.START_WITHIN", 0.05)
        pool._observe = lambda _: monkeypatch.setattr("app.decoders.pool.START_WITHIN", PATIENCE)
    work = await begun(pool, pixels(pool, drawn()))
    if not hangs:
        os.kill(server.process.pid, signal.SIGKILL)
    await work
    assert caplog.messages == [f"no decoder process can be started: {reason}"]
    assert pool.ended == {"start": 1}


async def test_an_image_whose_processes_are_killed_twice_may_be_sent_again(
    pool: DecoderPool,
) -> None:
    await pool.start()
    first = stopped(pool)
    works, forked = pool._new, list[DecoderProcess]()

    async def fork() -> DecoderProcess:
        decoder = await works()
        os.kill(decoder.pid, signal.SIGSTOP)
        forked.append(decoder)
        return decoder

    pool._new = fork  # type: ignore[method-assign]  # the next one does not answer too
    task = await begun(pool, pixels(pool, drawn()))
    os.kill(first.pid, signal.SIGKILL)
    while not forked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    os.kill(forked[0].pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="send it again"):
        await task
    assert pool.ended == {"killed": 2}


async def test_encoding_that_is_killed_is_not_the_fault_of_the_image(pool: DecoderPool) -> None:
    black = np.zeros((40, 50, 3), np.uint8)
    task = Encode(black.shape, codec.ImageFormat.PNG, codec.Encoding(), None, None, 10.0)
    await pool.start()
    idle = stopped(pool)
    encoding = await begun(pool, pool.encode(task, black, None))
    os.kill(idle.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="send it again"):
        await encoding
    assert pool.ended.total() == 1  # a `crash` where a thread still put the pixels into the area


BOUNDS = Bounds(2_000_000, 2_000_000, SMALL, 1.0)


async def test_few_pixels_that_take_much_memory_are_not_decoded_before_they_have_it(
    pool: DecoderPool,
) -> None:
    data = without_pixels(large_tile(64, 2048, samples=4, bits=16))
    found = await pool.decode(data, len(data), BOUNDS)
    assert isinstance(found, Seen)
    assert found.memory > SMALL  # so it may have to wait for memory
    data = without_pixels(large_tile(64, 1024, samples=4, bits=16))
    with pytest.raises(Undecodable):
        await pool.decode(data, len(data), BOUNDS)


@pytest.mark.slow
async def test_images_are_decoded_after_one_another_within_what_each_is_granted(
    pool: DecoderPool,
) -> None:
    """What the allocator keeps of former images does not count for the next one."""
    files = [drawn(each, side) for side in (1100, 30, 900) for each in ("PNG", "WEBP", "GIF")]
    for _ in range(3):
        for data in files:
            assert isinstance(await pool.decode(data, len(data), BOUNDS), codec.Decoded)
    assert not pool.ended


async def test_a_process_gives_the_memory_of_a_large_image_back(pool: DecoderPool) -> None:
    data = drawn(side=1900, compress_level=0)  # 11 MB, which the allocator would keep
    await pool.start()
    pid = pool._idle[0].pid
    assert of_process(pid, "oom_score_adj") == "1000\n"  # the kernel ends it first
    before = resident(pid)
    # The second answer comes when the process has ended its work on the large image.
    for each in (data, drawn()):
        assert isinstance(await pool.decode(each, len(each)), codec.Decoded)
    assert resident(pid) < before + (12 << 20)


def without_pixels(tiff: bytes) -> bytes:
    """Return a TIFF with a wrong head of its compressed pixels."""
    return tiff.replace(b"\x78\x01", b"no", 1)
