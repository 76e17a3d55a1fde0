"""What an image may take in a decoder process is asked for, and limited, by its estimate."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app.decoders import SMALL, Bounds, Seen
from models.codec import Decoded
from models.domain.errors import Undecodable
from tests.chaos.hostile.tiff import large_tile
from tests.decoder_pool import LIMITS, drawn, pool_of

ONE = replace(LIMITS, processes=1)
BOUNDS = Bounds(2_000_000, 2_000_000, SMALL, 1.0)


async def test_few_pixels_that_take_much_memory_are_not_decoded_before_they_have_it() -> None:
    async with pool_of(ONE) as pool:
        data = without_pixels(large_tile(64, 2048, samples=4, bits=16))
        found = await pool.decode(data, len(data), BOUNDS)
        assert isinstance(found, Seen)
        assert found.memory > SMALL  # so it may have to wait for memory
        data = without_pixels(large_tile(64, 1024, samples=4, bits=16))
        with pytest.raises(Undecodable):
            await pool.decode(data, len(data), BOUNDS)


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="needs Linux")
async def test_the_kernel_ends_decoders_first_when_memory_is_short() -> None:
    scores: list[str] = []

    def read(pid: int) -> None:
        scores.append(Path(f"/proc/{pid}/oom_score_adj").read_text())

    async with pool_of(ONE) as pool:
        await pool.start()
        read(pool._idle[0].pid)
    assert scores == ["1000\n"]


@pytest.mark.slow
async def test_images_are_decoded_after_one_another_within_what_each_is_granted() -> None:
    """What the allocator keeps of former images does not count for the next one."""
    files = [drawn(each, side) for side in (1100, 30, 900) for each in ("PNG", "WEBP", "GIF")]
    async with pool_of(ONE) as pool:
        for _ in range(3):
            for data in files:
                assert isinstance(await pool.decode(data, len(data), BOUNDS), Decoded)
        assert not pool.ended


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
async def test_a_process_gives_the_memory_of_a_large_image_back() -> None:
    data = drawn(side=1900, compress_level=0)  # 11 MB, which the allocator would keep
    async with pool_of(ONE) as pool:
        await pool.start()
        before = resident(pool._idle[0].pid)
        assert isinstance(await pool.decode(data, len(data)), Decoded)
        small = drawn()
        # Its answer comes when the process has ended its work on the large image.
        assert isinstance(await pool.decode(small, len(small)), Decoded)
        assert resident(pool._idle[0].pid) < before + (12 << 20)


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def without_pixels(tiff: bytes) -> bytes:
    """Return a TIFF whose compressed pixels, which begin at byte 8, are broken."""
    return tiff[:8] + b"broken" + tiff[14:]
