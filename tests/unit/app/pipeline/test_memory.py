"""Large images wait for memory, each for the most that it takes; small images never do."""

import asyncio
import math
from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from app.admission import Admission, Limits
from app.admission.counters import Counters, Total
from app.decoders.memory import SMALL
from app.decoders.messages import Seen
from app.intake.item import Item
from app.intake.wanted import OutputFormat, Parts, Version
from app.pipeline.coding import ImageContext
from app.pipeline.memory import (
    Memory,
    check_filters,
    filtering,
    to_classify,
    to_filter,
    to_match,
    to_process,
)
from models.codec import Encoding, ImageFormat, ImageInfo, encode_memory
from models.domain.deadline import NEVER
from models.domain.errors import Unprocessable
from models.settings import Settings
from tests.memory import resident
from tests.server import PATIENCE
from workers.filters.marks import MOST_PICTURE, picture_of
from workers.filters.registry import FILTERS, parse_chain
from workers.filters.templates import matches
from workers.operations import Classify, FilterChain

LARGE = 2 * SMALL


def image_of(memory: Memory, client: str = "") -> ImageContext:
    """Return an image that has its turn whenever it wants one."""
    admission = Admission(Limits(64, 1 << 30, 1 << 29), at_once=64)
    image = ImageContext(cast(Item, None), admission.enter(client), memory)
    image.turn = image.permit.turn(1).__enter__()
    return image


class Images:
    """Images that hold memory until they are told to leave; `entered` are their estimates."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.entered: list[int] = []
        self.leave = asyncio.Event()

    async def hold(self, n_bytes: int, client: str = "") -> None:
        image = image_of(self._memory, client)
        try:
            await image.hold(n_bytes)
            self.entered.append(n_bytes)
            await self.leave.wait()
        finally:
            image.release()


async def settled() -> None:
    """Return when no task can go on."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("limit", "wanted", "entered"),
    [
        (6, (3, 2, 2, 3), [3, 2]),  # in order, within the budget
        (8, (9, 1), [9]),  # one over the whole budget is alone
        (1, (1, 1, 0.5), [1, 0.5]),  # small ones pass by
    ],
)
async def test_images_wait_for_memory_in_order_and_small_images_never(
    limit: int, wanted: tuple[float, ...], entered: list[float]
) -> None:
    counters = Counters()
    images = Images(Memory(limit * LARGE, counters))
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        tasks = [group.create_task(images.hold(int(n * LARGE))) for n in wanted]
        await settled()
        assert images.entered == [n * LARGE for n in entered]
        held = min(limit, sum(n for n in entered if n > 0.5)) * LARGE
        assert counters.total(Total.MEMORY) == held
        images.leave.set()
    assert len(tasks) == len(images.entered)
    assert counters.total(Total.MEMORY) == 0


async def test_a_flood_of_large_images_of_one_client_keeps_no_other_client_waiting() -> None:
    images = Images(Memory(8 * LARGE))
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(images.hold(5 * LARGE, "flood"))
        await settled()
        group.create_task(images.hold(3 * LARGE, "other"))
        await settled()
        assert images.entered == [5 * LARGE, 3 * LARGE]
        images.leave.set()


async def test_an_image_that_waits_for_memory_has_no_turn_and_ends_with_nothing() -> None:
    memory = Memory(4 * LARGE, counters := Counters())
    first, second = image_of(memory), image_of(memory)
    await first.hold(4 * LARGE)
    await second.turn.take()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await second.hold(LARGE)
    assert second.turn.lane is None
    first.release()
    assert counters.total(Total.MEMORY) == 0
    async with asyncio.timeout(PATIENCE):
        await second.hold(4 * LARGE)
    assert second.turn.lane is not None


async def test_an_image_gives_back_what_it_holds_before_it_waits_for_more() -> None:
    image = image_of(Memory(4 * LARGE, counters := Counters()))
    async with asyncio.timeout(PATIENCE):
        for n, held in ((1, 1), (3, 3), (4, 4), (9, 4), (2, 4)):
            await image.hold(n * LARGE)
            assert counters.total(Total.MEMORY) == held * LARGE
    image.release()
    assert counters.total(Total.MEMORY) == 0


MOST = 50_000_000


def seen(mode: str = "RGB", memory: int = 0, height: int = 1000, width: int = 1000) -> Seen:
    info = ImageInfo(ImageFormat.PNG, width, height, 1, 1, mode, fast_jpeg=False)
    return Seen(info, 0.0, memory)


def version(*ops: Mapping[str, object], format_: ImageFormat = ImageFormat.JPEG) -> Version:
    return Version(FilterChain(parse_chain(ops)), OutputFormat(format_), Encoding())


def encoding(format_: ImageFormat) -> int:
    """Return the bytes that encoding an image of 1000 × 1000 takes."""
    return encode_memory((1000, 1000, 3), format_, Encoding())


INVERT, BLUR = {"name": "invert"}, {"name": "gaussian_blur", "sigma": 2}
PNG, JPEG, AVIF = ImageFormat.PNG, ImageFormat.JPEG, ImageFormat.AVIF
ODD = encode_memory((1999, 2999, 3), AVIF, Encoding())


@pytest.mark.parametrize(
    ("op", "format_", "header", "options", "needed"),
    [
        (INVERT, JPEG, seen(), {}, 6_000_000),
        (INVERT, JPEG, seen(memory=9_000_000), {}, 9_000_000),
        (INVERT, AVIF, seen(), {}, encoding(AVIF)),
        (INVERT, PNG, seen(), {}, encoding(PNG)),
        (INVERT, PNG, seen(), {"shared": True}, encoding(PNG) + 3_000_000),
        (BLUR, JPEG, seen("RGBA"), {}, 33_000_000),
        (BLUR, JPEG, seen("P"), {}, 33_000_000),
        (BLUR, JPEG, seen("RGBA"), {"on_device": True}, 8_000_000),
        (BLUR, JPEG, seen(), {"on_device": True, "encoded": True}, encoding(JPEG)),
        ({"name": "resize", "width": 9000, "height": 9000}, JPEG, seen(memory=7), {}, 7),
        ({"name": "trim"}, JPEG, seen(), {}, SMALL),
        ({"name": "trim"}, AVIF, seen(height=2000, width=3000), {}, ODD),
    ],
)
def test_the_most_expensive_of_decoding_filtering_and_encoding_counts(
    op: Mapping[str, object],
    format_: ImageFormat,
    header: Seen,
    options: dict[str, bool],
    needed: int,
) -> None:
    assert to_filter(version(op, format_=format_), MOST, header, **options) == needed


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("before", [{"name": "pad", "top": 10_000}, {"name": "invert"}])
@pytest.mark.parametrize("after", ["motion_blur", "equalize", "rotate90"])
def test_an_image_holds_what_the_filters_after_a_measurement_take(
    before: Mapping[str, object], after: str, shared: bool
) -> None:
    shape = 400, 500, 3
    first, *rest = parse_chain([before, {"name": "trim"}, {"name": after}])
    held = FilterChain((first, *rest)).memory(shape, overwrite=not shared)
    measured = parse_chain([{"name": "crop"}, {"name": after}])  # nothing is cut away
    needed = FilterChain(measured).memory(first.shape_after(shape), overwrite=True)
    assert needed <= held - shared * math.prod(shape)


def test_a_search_of_a_narrow_picture_takes_no_more_than_its_estimate() -> None:
    column = np.random.default_rng(1).integers(0, 256, (1_000_000, 1), np.uint8)
    picture = picture_of(column[:MOST_PICTURE, :, None])
    with resident() as peak:
        assert matches(column, picture, 1, 0.9, NEVER)
    assert peak() <= to_match(seen(height=len(column), width=1))


def test_filters_that_need_more_than_is_allowed_are_refused_with_both_numbers() -> None:
    wide, most = (1, 30_000_000, 3), Settings().encode_memory
    chain = FilterChain(parse_chain([{"name": "pixelate"}]))
    check_filters(chain, MOST, wide, filtering(chain, wide))
    with pytest.raises(Unprocessable, match=r"30000000 × 1 .*286 .*parts"):
        check_filters(chain, MOST, wide, most)


WITH_ALPHA = (("canny", 4), ("rotate", 4))


@pytest.mark.parametrize(
    ("name", "channels"),
    [(name, n) for name in FILTERS for n in (1, 3, 4) if (name, n) not in WITH_ALPHA],
)
def test_filters_but_two_with_alpha_take_24_megapixels_by_default(name: str, channels: int) -> None:
    chain = FilterChain(parse_chain([FILTERS[name].example]))
    assert filtering(chain, (4000, 6000, channels)) <= Settings().encode_memory


def test_as_many_parts_run_at_a_time_as_the_budget_has_room_for() -> None:
    versions = version(INVERT), version(BLUR)
    wanted, header = Parts(Classify(), versions), seen(memory=7)
    each = [to_classify(header), *(to_filter(v, MOST, header, shared=True) for v in versions)]
    assert each[1:] == [8_300_000, 13_000_000]
    largest = sorted(each, reverse=True)
    for limit, parts in ((1 << 30, 3), (2 * largest[0], 2), (1, 1)):
        found = to_process(wanted, MOST, Memory(limit), header)
        assert (found[0], min(3, found[1])) == (sum(largest[:parts]), parts)
    assert to_process(wanted, MOST, Memory(1), seen(memory=90_000_000))[0] == 90_000_000
