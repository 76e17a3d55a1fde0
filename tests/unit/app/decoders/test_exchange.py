"""Handing files over to decoder processes."""

import asyncio
import io
import os
import threading
from typing import cast

import msgspec
import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from app.decoders import exchange
from app.decoders.frames import Broken, Described, Encoded, Failed, Frame, Info, Pixels, Task
from app.decoders.memory import mapped, memory_file
from app.decoders.process import DecoderProcess
from models import codec


def test_a_memory_file_is_closed_when_the_wait_for_it_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), list[int]()

    def slow_memory_file(*_parts: bytes | memoryview) -> int:
        begun.set()
        go_on.wait()
        made.append(os.open(os.devnull, os.O_RDONLY))
        return made[0]

    monkeypatch.setattr(exchange, "memory_file", slow_memory_file)

    async def cancelled() -> None:
        filling = asyncio.create_task(exchange.filled_memory_file(b"pixels"))
        await asyncio.to_thread(begun.wait)
        filling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await filling
        go_on.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(cancelled())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])


SIDE = 700
PICTURE = Info("png", SIDE, SIDE, 1, 1, "RGB", False, False, 0.0, 0)
TASK = Task(100, SIDE * SIDE, 1.0)


def test_a_memory_file_stays_open_until_the_thread_that_maps_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sizes = list[int]()

    def slowly_mapped(descriptor: int, size: int) -> NDArray[np.uint8]:
        begun.set()
        go_on.wait()
        sizes.append(os.fstat(descriptor).st_size)
        return mapped(descriptor, size)

    monkeypatch.setattr(exchange, "mapped", slowly_mapped)
    answered = memory_file(bytes(3 * SIDE * SIDE))

    async def cancelled() -> None:
        decoder = _Answering(Pixels(PICTURE, (SIDE, SIDE, 3), None, None), answered)
        task = Task(100, SIDE * SIDE, 1.0)
        taking = asyncio.create_task(
            exchange.decoded_by(cast(DecoderProcess, decoder), lambda _seen: True, task)
        )
        await asyncio.to_thread(begun.wait)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        go_on.set()

    asyncio.run(cancelled())  # which waits for the threads of its loop
    assert sizes == [3 * SIDE * SIDE]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(answered)


def test_a_file_that_comes_beside_a_description_is_closed_and_ends_the_process() -> None:
    given = os.open(os.devnull, os.O_RDONLY)
    description = codec.Description("png", 1, 1, 1, 1, "RGB", {}, None, None)

    async def described() -> None:
        decoder = cast(DecoderProcess, _Answering(Described(description), given))
        await exchange.described_by(decoder, lambda _seen: True, TASK)

    with pytest.raises(Broken):
        asyncio.run(described())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given)


@pytest.mark.parametrize("stated", [-1, 0, 1000])
@pytest.mark.parametrize("describe", [False, True])
def test_a_process_cannot_state_less_memory_than_its_image_takes(
    describe: bool, stated: int
) -> None:
    seen = refused(msgspec.structs.replace(PICTURE, memory=stated), describe)
    assert seen.memory == codec.decode_memory(seen.info, TASK.size) > SIDE * SIDE


@pytest.mark.parametrize("describe", [False, True])
def test_a_larger_estimate_of_the_process_is_taken(describe: bool) -> None:
    assert refused(msgspec.structs.replace(PICTURE, memory=1 << 33), describe).memory == 1 << 33


def test_sound_files_are_estimated_as_their_process_estimates_them() -> None:
    for name in ("jpeg", "png", "webp", "gif", "bmp", "tiff"):
        written = io.BytesIO()
        image = PIL.Image.new("RGB", (64, 48))
        image.save(written, name, **({"progressive": True} if name == "jpeg" else {}))
        data = written.getvalue()
        opened = codec.open_file(data, max_pixels=64 * 48)
        assert codec.decode_memory(opened.info, len(data)) <= opened.memory


OTHER_SHAPES = [(SIDE + 1, SIDE, 3), (SIDE, SIDE - 1, 3), (SIDE, SIDE, 4)]


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("shape", OTHER_SHAPES)
def test_pixels_of_another_shape_than_the_header_s_end_the_process(
    shape: tuple[int, int, int], asks: bool
) -> None:
    pixels = Pixels(PICTURE, shape, None, None)
    sent = memory_file(bytes(4 * (SIDE + 1) * SIDE))
    task = msgspec.structs.replace(TASK, max_pixels=4 * SIDE * SIDE)
    with pytest.raises(Broken, match="shape"):
        asyncio.run(_decoded(_Answering(pixels, sent, PICTURE if asks else None), task))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(sent)


@pytest.mark.parametrize(
    "header", [{"width": 1, "height": 1}, {"width": SIDE - 1}, {"mode": "L"}], ids=str
)
def test_pixels_of_another_size_than_the_accepted_header_end_the_process(
    header: dict[str, object],
) -> None:
    accepted = msgspec.structs.replace(PICTURE, **header)
    sent = memory_file(bytes(3 * SIDE * SIDE))
    pixels = Pixels(PICTURE, (SIDE, SIDE, 3), None, None)
    with pytest.raises(Broken, match="accepted"):
        asyncio.run(_decoded(_Answering(pixels, sent, accepted), TASK))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(sent)


def test_an_orientation_behind_the_pixels_may_swap_their_sides() -> None:
    header = msgspec.structs.replace(PICTURE, width=30, height=20)
    turned = msgspec.structs.replace(PICTURE, width=20, height=30, orientation=6)
    sent = memory_file(bytes(3 * 600))
    answering = _Answering(Pixels(turned, (30, 20, 3), None, None), sent, header)
    decoded = asyncio.run(_decoded(answering, TASK))
    assert isinstance(decoded, codec.Decoded)
    assert (decoded.image.height, decoded.image.width) == (30, 20)


async def _decoded(decoder: "_Answering", task: Task) -> object:
    return await exchange.decoded_by(cast(DecoderProcess, decoder), lambda _seen: True, task)


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_an_impossible_cost_ends_the_process(cost: float) -> None:
    with pytest.raises(Broken):
        refused(msgspec.structs.replace(PICTURE, cost=cost), describe=False)


IMPOSSIBLE = Pixels(PICTURE, (SIDE, SIDE, 5), None, None)


@pytest.mark.parametrize("describe", [False, True])
@pytest.mark.parametrize(
    "answer", [PICTURE, Failed("undecodable", "it is broken"), IMPOSSIBLE, Encoded(1)]
)
def test_a_file_beside_a_frame_that_has_none_is_closed_and_ends_the_process(
    answer: Frame, describe: bool
) -> None:
    given = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(Broken):
        answered(_Answering(answer, given), describe, accept=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given)


def test_a_file_beside_the_error_of_an_encoding_is_closed_and_ends_the_process() -> None:
    given = os.open(os.devnull, os.O_RDONLY)
    decoder = cast(DecoderProcess, _Answering(Failed("undecodable", "it is broken"), given))
    with pytest.raises(Broken):
        asyncio.run(exchange.encoded_by(decoder))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given)


def answered(decoder: "_Answering", describe: bool, *, accept: bool) -> object:
    """Return what comes of an exchange with the decoder."""
    talk = exchange.described_by if describe else exchange.decoded_by
    return asyncio.run(talk(cast(DecoderProcess, decoder), lambda _seen: accept, TASK))


def refused(answer: Info, describe: bool) -> exchange.Seen:
    """Return the header that the service sees of an image which it refuses."""
    seen = answered(_Answering(answer, None), describe, accept=False)
    assert isinstance(seen, exchange.Seen)
    return seen


class _Answering:
    """A decoder process that has one answer, the memory file beside it, and a header before it."""

    def __init__(self, answer: Frame, memory: int | None, header: Info | None = None) -> None:
        self._answers: list[tuple[Frame, int | None]] = [(answer, memory)]
        if header is not None:
            self._answers.insert(0, (header, None))

    async def receive(self) -> tuple[Frame, int | None]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def send(self, _frame: Frame) -> None:
        """Take a frame and do nothing."""


def test_a_file_that_is_shorter_than_its_answer_states_is_closed_and_ends_the_process() -> None:
    memory = memory_file(b"short")
    decoder = cast(DecoderProcess, _Answering(Encoded(1 << 40), memory))
    with pytest.raises(Broken):
        asyncio.run(exchange.encoded_by(decoder))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(memory)


def test_a_large_file_is_read_and_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping beside the copy would count the file twice."""
    monkeypatch.setattr(exchange, "mapped", None)
    made = os.urandom(3 << 20)
    decoder = cast(DecoderProcess, _Answering(Encoded(len(made)), memory_file(made)))
    assert asyncio.run(exchange.encoded_by(decoder)) == made
