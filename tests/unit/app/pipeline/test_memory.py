"""Large images wait for memory, each for the most that it takes; small images never do."""

import asyncio

import pytest

from app.admission.counters import Counters, Total
from app.decoders import SMALL, Seen
from app.intake.wanted import Output, OutputFormat, Parts, Version
from app.pipeline.memory import (
    LEAST,
    PER_PROCESS,
    STRIPE,
    HeldMemory,
    Memory,
    budget_for,
    check_filtering,
    filtering,
    to_classify,
    to_filter,
    to_process,
)
from models.codec import Encoding, ImageFormat, ImageInfo, encode_memory
from models.domain.errors import Unprocessable
from models.settings import Settings
from tests.server import PATIENCE
from workers import preprocess
from workers.filters.registry import FILTERS, parse_chain
from workers.operations import Classify, FilterChain

LARGE = 2 * SMALL


class Images:
    """Images that hold memory until they are told to leave; `entered` are their estimates."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.entered: list[int] = []
        self.leave = asyncio.Event()

    async def hold(self, n_bytes: int, client: str = "") -> None:
        share = HeldMemory(self._memory, client)
        try:
            await share.hold(n_bytes)
            self.entered.append(n_bytes)
            await self.leave.wait()
        finally:
            share.release()


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
        for _ in range(5):
            await asyncio.sleep(0)
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
        for _ in range(5):
            await asyncio.sleep(0)
        group.create_task(images.hold(3 * LARGE, "other"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert images.entered == [5 * LARGE, 3 * LARGE]
        images.leave.set()


@pytest.mark.parametrize("amount", [1, 4])
async def test_an_image_whose_deadline_passes_while_it_waits_holds_nothing(amount: int) -> None:
    memory = Memory(4 * LARGE, counters := Counters())
    first, second = HeldMemory(memory, ""), HeldMemory(memory, "")
    await first.hold(4 * LARGE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await second.hold(amount * LARGE)
    first.release()
    assert counters.total(Total.MEMORY) == 0
    async with asyncio.timeout(PATIENCE):
        await second.hold(4 * LARGE)


async def test_an_image_gives_back_what_it_holds_before_it_waits_for_more() -> None:
    memory = Memory(4 * LARGE, counters := Counters())
    share = HeldMemory(memory, "")
    async with asyncio.timeout(PATIENCE):
        for n in (LARGE, 3 * LARGE, 4 * LARGE, 9 * LARGE, LARGE):
            await share.hold(n)
            assert counters.total(Total.MEMORY) == min(n, 4 * LARGE)
    await share.hold(SMALL)
    assert counters.total(Total.MEMORY) == 0


def test_the_budget_grows_with_the_processes() -> None:
    assert budget_for(2) == LEAST
    assert budget_for(16) == 16 * PER_PROCESS


async def test_freed_memory_goes_back_to_the_system_once_after_large_images() -> None:
    loop = asyncio.get_running_loop()
    trimmed: asyncio.Queue[None] = asyncio.Queue()

    def trim() -> None:
        loop.call_soon_threadsafe(trimmed.put_nowait, None)

    memory = Memory(8 * LARGE, trim=trim)
    share = HeldMemory(memory, "")
    await share.hold(SMALL)
    share.release()
    assert memory.trimming is None
    for _ in range(3):
        await share.hold(LARGE)
        share.release()
    assert memory.trimming is not None
    memory.trimming.cancel()
    memory.trim_now()
    async with asyncio.timeout(PATIENCE):
        await trimmed.get()
    assert memory.trimming is None
    assert trimmed.empty()


MOST = 50_000_000


def seen(mode: str = "RGB", memory: int = 0) -> Seen:
    info = ImageInfo(ImageFormat.PNG, 1000, 1000, 1, 1, mode, fast_jpeg=False)
    return Seen(info, 0.0, memory)


def version(*ops: dict[str, object], format_: ImageFormat = ImageFormat.JPEG) -> Version:
    output = Output(OutputFormat(format_), Encoding())
    return Version(FilterChain(parse_chain(ops)), output)


def test_to_classify_takes_what_decoding_takes_or_a_copy_beside_the_pixels() -> None:
    assert to_classify(seen(memory=9_000_000)) == 9_000_000
    assert to_classify(seen()) == 3_000_000
    assert to_classify(seen("RGBA")) == 7_000_000
    assert to_classify(seen("L")) == 4_000_000
    tall = ImageInfo(ImageFormat.PNG, 500, 2000, 1, 1, "RGB", fast_jpeg=False)
    assert to_classify(Seen(tall, 0.0)) == 7_000_000


def test_a_large_image_is_classified_with_a_copy_of_one_stripe() -> None:
    tall = ImageInfo(ImageFormat.PNG, 2000, 12_000, 1, 1, "RGBA", fast_jpeg=False)
    assert STRIPE == preprocess.STRIPE
    assert to_classify(Seen(tall, 0.0)) == 4 * 24_000_000 + 7 * STRIPE


def test_the_most_expensive_of_decoding_filtering_and_encoding_counts() -> None:
    invert = version({"name": "invert"})
    assert to_filter(invert, MOST, seen()) == 6_000_000  # source and result
    assert to_filter(invert, MOST, seen(memory=9_000_000)) == 9_000_000
    to_avif = version({"name": "invert"}, format_=ImageFormat.AVIF)
    expected = encode_memory((1000, 1000, 3), ImageFormat.AVIF, Encoding())
    assert to_filter(to_avif, MOST, seen()) == expected


def test_a_small_result_is_cheap_to_encode() -> None:
    small = version({"name": "resize", "width": 10, "height": 10}, format_=ImageFormat.AVIF)
    large = version({"name": "invert"}, format_=ImageFormat.AVIF)
    assert to_filter(small, MOST, seen()) < to_filter(large, MOST, seen())


def test_alpha_and_an_undecided_palette_take_more_than_colour() -> None:
    blur = version({"name": "gaussian_blur", "sigma": 2})
    plain = to_filter(blur, MOST, seen())
    assert to_filter(blur, MOST, seen("RGBA")) == to_filter(blur, MOST, seen("P")) > plain


def test_on_a_device_only_the_result_takes_memory_here() -> None:
    blur = version({"name": "gaussian_blur", "sigma": 2})
    expected = encode_memory((1000, 1000, 3), ImageFormat.JPEG, Encoding())
    assert to_filter(blur, MOST, seen(), on_device=True, encoded=True) == expected


def test_what_a_gpu_filters_is_not_charged_the_memory_of_a_cpu() -> None:
    blur = version({"name": "gaussian_blur", "sigma": 2})
    assert to_filter(blur, MOST, seen("RGBA"), on_device=True) == 8_000_000  # source and result
    assert to_filter(blur, MOST, seen("RGBA")) == 33_000_000


def test_filters_of_large_images_do_not_overwrite_what_other_parts_read() -> None:
    info = ImageInfo(ImageFormat.PNG, 6000, 4000, 1, 1, "RGB", fast_jpeg=False)
    invert = version({"name": "invert"})
    alone = to_filter(invert, MOST, Seen(info, 0.0))
    assert to_filter(invert, MOST, Seen(info, 0.0), shared=True) > alone


def test_a_source_that_other_parts_read_is_kept_while_a_result_is_encoded() -> None:
    to_png = version({"name": "invert"}, format_=ImageFormat.PNG)
    alone = encode_memory((1000, 1000, 3), ImageFormat.PNG, Encoding())
    assert to_filter(to_png, MOST, seen()) == alone
    assert to_filter(to_png, MOST, seen(), shared=True) == alone + 3_000_000


def test_filters_that_need_more_than_is_allowed_are_refused_with_both_numbers() -> None:
    wide = 1, 30_000_000, 3
    needed = filtering(FilterChain(parse_chain([{"name": "pixelate"}])), wide)
    most = Settings().encode_memory
    check_filtering(most, wide, most)
    with pytest.raises(Unprocessable, match=r"30000000 × 1 .*286 .*parts"):
        check_filtering(needed, wide, most)


@pytest.mark.parametrize(
    ("name", "channels"),
    [(name, n) for name in FILTERS for n in (1, 3, 4) if (name, n) != ("canny", 4)],
)
def test_filters_but_canny_with_alpha_take_24_megapixels_by_default(
    name: str, channels: int
) -> None:
    chain = FilterChain(parse_chain([FILTERS[name].example]))
    assert filtering(chain, (4000, 6000, channels)) <= Settings().encode_memory


@pytest.mark.parametrize("name", ["clahe", "vignette", "noise", "pixelate", "gaussian_blur"])
def test_filters_in_a_row_that_overwrite_an_image_take_it_once(name: str) -> None:
    once, twice = (
        filtering(FilterChain(parse_chain([{"name": name}] * n)), (4000, 6000, 4)) for n in (1, 2)
    )
    assert once == twice


def test_a_version_that_will_be_refused_takes_what_decoding_takes() -> None:
    pad = version({"name": "pad", "left": 1000})
    assert to_filter(pad, 1_500_000, seen(memory=7)) == 7


def test_as_many_parts_run_at_a_time_as_the_budget_has_room_for() -> None:
    wanted = Parts(Classify(), (version({"name": "invert"}), version({"name": "autocontrast"})))
    all_, two, one = (28_300_000, 3), (25_300_000, 2), (17_000_000, 1)
    for limit, needed in ((1 << 30, all_), (40_000_000, two), (1, one)):
        found = to_process(wanted, MOST, Memory(limit), seen(memory=7))
        assert (found[0], min(3, found[1])) == needed
    assert to_process(wanted, MOST, Memory(1), seen(memory=90_000_000))[0] == 90_000_000


def test_a_chain_takes_its_source_the_input_of_a_filter_and_what_that_filter_makes() -> None:
    chain = FilterChain(parse_chain([{"name": "invert"}, {"name": "gaussian_blur", "sigma": 2}]))
    assert chain.memory((100, 100, 3)) == 10_000 * (3 + 3 + 10)
    assert chain.shape_after((100, 100, 1)) == (100, 100, 1)
