"""What is expected of an image before its header was read, and when its work ends."""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any, cast

import pytest

from app.admission import Permit
from app.intake.spool import Blob
from app.intake.wanted import (
    AS_SOURCE,
    MOST_WORK,
    TYPICAL_PIXELS,
    Describe,
    OutputFormat,
    Parts,
    Version,
    work_on,
)
from app.pipeline.pipeline import timeout_of
from models.codec import Encoding, ImageFormat
from models.domain.alarms import alarms
from models.domain.deadline import Deadline
from tests.pictures import png
from workers.filters.registry import parse_chain
from workers.operations import FilterChain


def claiming(width: int, height: int) -> bytes:
    """Return a PNG whose header claims a size that its data do not have."""
    file = bytearray(png(1, 8, 8))
    file[16:24] = struct.pack(">II", width, height)
    return bytes(file)


@pytest.mark.parametrize(
    ("width", "height", "counts"),
    [(1000, 500, 500_000), (0xFFFFFFFF, 0xFFFFFFFF, None), (1000, 2001, None), (8, 8, 1 << 16)],
)
def test_work_follows_the_header_but_no_size_that_will_be_refused(
    width: int, height: int, counts: int | None
) -> None:
    work = work_on(Blob.of(claiming(width, height)), Describe(), 2_000_000)
    assert work == 1000 + (counts or TYPICAL_PIXELS) // 50


@pytest.mark.parametrize(
    ("format_", "options", "ops", "encoding"),
    [
        (OutputFormat(ImageFormat.JPEG), {}, [], 3_000),
        (OutputFormat(ImageFormat.WEBP), {}, [], 50_000),
        (AS_SOURCE, {}, [], 70_000),
        (AS_SOURCE, {"png_level": 0}, [], 57_000),
        (OutputFormat(ImageFormat.AVIF), {"avif_speed": 0}, [], MOST_WORK),
        (OutputFormat(None), {}, [], 0),
        (AS_SOURCE, {}, [{"name": "resize", "width": 100, "height": 100}], 70_000),
    ],
)
def test_work_follows_the_format_of_each_version_and_has_a_bound(
    format_: OutputFormat, options: dict[str, Any], ops: list[Any], encoding: int
) -> None:
    chain = FilterChain(parse_chain(ops)) if ops else FilterChain(())
    version = Version(chain, format_, Encoding(**options))
    file, decoding, each = claiming(2000, 500), 21_000, 5_000 * len(ops) + encoding
    expected = [min(MOST_WORK, decoding + count * each) for count in (1, 2)]
    parts = Parts(None, (version, version))
    found = [work_on(Blob.of(file), wanted, 2_000_000) for wanted in (version, parts)]
    assert found == pytest.approx(expected, abs=1)


@dataclass(frozen=True)
class Held:
    """What the alarm of an image needs of its permit."""

    in_background: bool
    deadline: Deadline


@pytest.mark.parametrize("in_background", [True, False])
def test_a_server_that_gives_its_requests_up_ends_no_image_of_a_job(in_background: bool) -> None:
    async def scenario() -> None:
        deadline = Deadline.after(100, asyncio.get_running_loop().time())
        with timeout_of(cast(Permit, Held(in_background, deadline))):
            alarms().end()
            await asyncio.sleep(0)

    if in_background:
        asyncio.run(scenario())
    else:
        with pytest.raises(TimeoutError):
            asyncio.run(scenario())
