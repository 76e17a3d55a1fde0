"""What is expected of an image before its header was read; images of a request side by side."""

import asyncio
import gc
import struct
import weakref
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pytest
from PIL import Image

from app.admission import Permit
from app.http.request import StreamWindow
from app.intake.item import Item
from app.intake.spool import Blob
from app.intake.wanted import (
    AS_SOURCE,
    TYPICAL_PIXELS,
    ImageRequest,
    OutputFormat,
    Parts,
    Version,
    work_on,
)
from app.pipeline.outcomes import Answer
from app.pipeline.pipeline import Pipeline, run, timeout_of
from models.api.schemas import InfoOptions
from models.codec import Encoding, ImageFormat
from models.domain.alarms import alarms
from models.domain.deadline import Deadline
from tests.pictures import encoded, png
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
    work = work_on(Blob.of(claiming(width, height)), InfoOptions(), 2_000_000)
    assert work == 1000 + (counts or TYPICAL_PIXELS) // 50


@pytest.mark.parametrize(
    ("format_", "options", "ops", "encoding"),
    [
        (OutputFormat(ImageFormat.JPEG), {}, [], 3_000),
        (OutputFormat(ImageFormat.WEBP), {}, [], 50_000),
        (AS_SOURCE, {}, [], 70_000),
        (AS_SOURCE, {"png_level": 0}, [], 57_000),
        (OutputFormat(ImageFormat.AVIF), {"avif_speed": 0}, [], 53_000_000),
        (OutputFormat(None), {}, [], 0),
        (AS_SOURCE, {}, [{"name": "resize", "width": 100, "height": 100}], 70_000),
    ],
)
def test_work_follows_the_format_of_each_version(
    format_: OutputFormat, options: dict[str, Any], ops: list[Any], encoding: int
) -> None:
    chain = FilterChain(parse_chain(ops)) if ops else FilterChain(())
    version = Version(chain, format_, Encoding(**options))
    file, decoding, each = claiming(2000, 500), 21_000, 5_000 * len(ops) + encoding
    expected = [decoding + count * each for count in (1, 2)]
    parts = Parts(None, (version, version))
    found = [work_on(Blob.of(file), wanted, 2_000_000) for wanted in (version, parts)]
    assert found == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("format_", ["GIF", "PNG", "WEBP"])
def test_work_follows_all_frames_that_are_filtered(format_: str) -> None:
    more = [Image.new("RGB", (300, 300), (20 * n, 0, 0)) for n in range(12)]
    file = Blob.of(encoded(more[0], format_, save_all=True, append_images=more[1:], duration=50))
    output = OutputFormat(ImageFormat.WEBP)
    first, every = (Version(FilterChain(()), output, Encoding(frames=f)) for f in ("first", "all"))
    once = work_on(file, first, 10**8) - 1000
    file.work = 0
    assert work_on(file, every, 10**8) - 1000 == pytest.approx(12 * once, abs=12)


@dataclass(frozen=True)
class Held:
    """What the alarm of an image needs of its permit."""

    in_background: bool
    deadline: Deadline


@pytest.mark.parametrize("in_background", [True, False])
async def test_a_server_that_gives_its_requests_up_ends_no_image_of_a_job(
    in_background: bool,
) -> None:
    deadline = Deadline(asyncio.get_running_loop().time() + 100)
    given_up = nullcontext() if in_background else pytest.raises(TimeoutError)
    with given_up, timeout_of(cast(Permit, Held(in_background, deadline))):
        alarms().end()
        await asyncio.sleep(0)


class Works:
    """Work on items that finishes when a test says so; `ended` lists what has ended, in order."""

    def __init__(self, *names: str) -> None:
        self.gates = {name: asyncio.Event() for name in names}
        self.started: list[str] = []
        self.all_started = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, name: str) -> str:
        self.started.append(name)
        if len(self.started) == len(self.gates):
            self.all_started.set()
        try:
            await self.gates[name].wait()
            return name
        finally:
            self.ended.append(name)


async def test_answers_that_are_asked_for_come_in_the_order_in_which_they_finish() -> None:
    works, found = Works("a", "b", "c"), []
    works.gates["b"].set()
    async with aclosing(run(works, Stream("a", "b", "c").items(), StreamWindow(3))) as answers:
        await asyncio.sleep(0)
        assert works.started == []
        async for answer in answers:
            found.append(answer)
            works.gates["c" if answer == "b" else "a"].set()
    assert found == ["b", "c", "a"]


async def test_all_work_has_ended_when_the_request_has() -> None:
    works = Works(*(names := ["a", "b", "c"]))
    answers = run(works, Stream(*names).items(), StreamWindow(3))
    waiting = asyncio.ensure_future(anext(answers))
    await works.all_started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(works.ended) == names
    works = Works(*names)
    works.gates["a"].set()
    answers = run(works, Stream(*names).items(), StreamWindow(3))
    assert await anext(answers) == "a"
    await answers.aclose()
    assert sorted(works.ended) == names


class Waiting(Pipeline):
    """Images that wait without end, and take the longer to end the later they come."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    async def answer(self, item: Item, **_: object) -> Answer:  # type: ignore[override]  # takes no options
        try:
            await asyncio.Event().wait()
            raise AssertionError("the event is never set")
        finally:
            for _turn in range(20 * item.index):
                await asyncio.sleep(0)
            self.ended.append(item.index)


@pytest.mark.parametrize("n_images", [1, 3])
async def test_all_work_has_ended_when_the_request_of_a_whole_answer_has(n_images: int) -> None:
    pipeline, items = Waiting(), tuple(Item(n, Blob.of(b"")) for n in range(n_images))
    answering = pipeline.whole(ImageRequest(items, InfoOptions()), cast(Permit, None))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answering, 0.01)
    assert pipeline.ended == [*range(n_images)]


class Stream:
    """Items of a stream; `read` lists those that were asked for."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.read: list[str] = []
        self.closed = False

    async def items(self) -> AsyncGenerator[str, None]:
        try:
            for name in self.names:
                self.read.append(name)
                yield name
        finally:
            self.closed = True


async def test_a_stream_is_read_when_its_window_has_room_and_its_answers_are_taken() -> None:
    works, stream, ended = Works("a", "b", "c", "d"), Stream("a", "b", "c", "d"), list[str]()
    window = StreamWindow(2)
    async with aclosing(run(works, stream.items(), window, ended.append)) as answers:
        works.gates["b"].set()
        assert await anext(answers) == "b"
        assert (stream.read, window.in_flight) == (["a", "b"], 2)
        works.gates["c"].set()
        assert await anext(answers) == "c"
        assert stream.read == ["a", "b", "c"]
        works.gates["a"].set()
        works.gates["d"].set()
        assert {await anext(answers), await anext(answers)} == {"a", "d"}
        assert [each async for each in answers] == []
    assert sorted(ended) == ["a", "b", "c", "d"]
    assert (window.in_flight, stream.closed) == (0, True)


async def test_a_stream_whose_client_leaves_is_cancelled_with_all_its_work() -> None:
    works, stream, ended = Works("a", "b"), Stream("a", "b", "c"), list[str]()
    window, before = StreamWindow(2), asyncio.all_tasks()
    answers = run(works, stream.items(), window, ended.append)
    asking = asyncio.ensure_future(anext(answers))
    await works.all_started.wait()
    tasks = weakref.WeakSet(asyncio.all_tasks() - before)
    asking.cancel()
    gc.disable()
    try:
        await asyncio.wait((asking,))
        assert asking.cancelled()
        del asking, answers
        assert not tasks, "no task waits for the garbage collector with its image"
    finally:
        gc.enable()
    assert sorted(works.ended) == sorted(ended) == ["a", "b"]
    assert stream.closed


async def test_an_item_whose_work_never_began_has_ended_too() -> None:
    works, ended = Works("a"), list[str]()

    async def items() -> AsyncGenerator[str, None]:
        asking.cancel()  # so the answers end before the work on the item has its first turn
        yield "a"

    answers = run(works, items(), StreamWindow(1), ended.append)
    asking = asyncio.ensure_future(anext(answers))
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0)
    assert (works.started, ended) == ([], ["a"])
