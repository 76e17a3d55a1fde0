"""What decoder processes answer is checked before it is used."""

import asyncio
import gc
import os
import threading
from dataclasses import replace
from typing import cast

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.decoders import Bounds, Seen, memory, pool
from app.decoders.memory import mapped, memory_file
from app.decoders.messages import (
    Broken,
    DecodeTask,
    Descriptor,
    Encode,
    Encoded,
    Frame,
    Info,
    Pixels,
)
from app.decoders.pool import ANY, read
from app.decoders.process import DecoderProcess
from models import codec
from models.codec import Encoding, ImageFormat, ImageInfo
from tests.pictures import jpeg, png

SIDE = 700
PICTURE = ImageInfo(ImageFormat.PNG, SIDE, SIDE, 1, 1, "RGB", fast_jpeg=False)
HEADER = Info(PICTURE, 0.0, 0)
TASK = DecodeTask(100, SIDE * SIDE, 1.0, ANY)
ENCODE = Encode((1, 1, 3), ImageFormat.PNG, Encoding(), None, None, 1.0)
NO_AREA = cast(DecoderProcess, None)


def is_refused(frame: Frame, file: Descriptor, task: DecodeTask) -> bool:
    try:
        asyncio.run(read(NO_AREA, task, (frame, file)))
    except Broken:
        return True
    return False


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_memory_file_stays_open_until_the_thread_that_maps_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on, sizes = threading.Event(), threading.Event(), list[int]()

    def slowly_mapped(descriptor: Descriptor, size: int) -> NDArray[np.uint8]:
        begun.set()
        go_on.wait()
        sizes.append(os.fstat(descriptor.number).st_size)
        return mapped(descriptor, size)

    monkeypatch.setattr(pool, "mapped", slowly_mapped)
    files = [memory_file(bytes(3 * SIDE * SIDE))]
    number = files[0].number

    async def cancelled() -> None:
        answer = Pixels(PICTURE, (SIDE, SIDE, 3), None, None), files.pop()
        taking = asyncio.create_task(read(NO_AREA, TASK, answer))
        del answer
        await asyncio.to_thread(begun.wait)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        go_on.set()

    asyncio.run(cancelled())  # which waits for the threads of its loop
    assert sizes == [3 * SIDE * SIDE]
    assert not is_open(number)


@pytest.mark.parametrize(("stated", "seen"), [(-1, None), (0, None), (1000, None), (1 << 33,) * 2])
@pytest.mark.parametrize("describe", [False, True])
def test_a_process_cannot_state_less_memory_than_its_image_takes(
    describe: bool, stated: int, seen: int | None
) -> None:
    answer = msgspec.structs.replace(HEADER, memory=stated), None
    task = msgspec.structs.replace(TASK, describe=describe)
    found = asyncio.run(read(NO_AREA, task, answer))
    assert isinstance(found, Seen)
    assert found.memory == (seen or codec.decode_memory(found.info, TASK.size)) > SIDE * SIDE


@pytest.mark.parametrize("data", [png(), jpeg()], ids=["png", "jpeg"])
def test_sound_files_are_estimated_as_their_process_estimates_them(data: bytes) -> None:
    opened = codec.open_file(data, max_pixels=1 << 24)
    assert codec.decode_memory(opened.info, len(data)) <= opened.memory


@pytest.mark.parametrize(
    ("frame", "bounds"),
    [
        (Pixels(PICTURE, (SIDE + 1, SIDE, 3), None, None), ANY),
        (Pixels(PICTURE, (SIDE, SIDE - 1, 3), None, None), ANY),
        (Pixels(PICTURE, (SIDE, SIDE, 4), None, None), ANY),
        (Pixels(PICTURE, (SIDE, SIDE, 3), None, None), Bounds(SIDE * SIDE - 1, SIDE**2, 1, 1.0)),
        (Pixels(PICTURE, (SIDE, SIDE, 3), None, -1), ANY),
        (Pixels(PICTURE, (SIDE, SIDE, 3), None, 1 << 30), ANY),
        (msgspec.structs.replace(HEADER, cost=-1.0), ANY),
        (msgspec.structs.replace(HEADER, cost=float("nan")), ANY),
        (msgspec.structs.replace(HEADER, cost=float("inf")), ANY),
        (Info(replace(PICTURE, orientation=9), 0.0, 0), ANY),
        (Encoded(1), ANY),
    ],
)
def test_answers_that_cannot_be_end_the_process_and_their_files_are_closed(
    frame: Frame, bounds: Bounds
) -> None:
    files = [memory_file(bytes(4 * (SIDE + 1) * SIDE))]
    number = files[0].number
    task = msgspec.structs.replace(TASK, max_pixels=4 * SIDE * SIDE, bounds=bounds)
    assert is_refused(frame, files.pop(), task)
    gc.collect()  # the event loop of the test refers to the error
    assert not is_open(number)


def test_an_encoded_file_that_is_shorter_than_stated_ends_the_process() -> None:
    with pytest.raises(Broken):
        asyncio.run(read(NO_AREA, ENCODE, (Encoded(1 << 40), memory_file(b"short"))))


def test_a_large_encoded_file_is_read_and_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping beside the copy would count the file twice."""
    monkeypatch.setattr(memory, "mapped", None)
    made = os.urandom(3 << 20)
    assert asyncio.run(read(NO_AREA, ENCODE, (Encoded(len(made)), memory_file(made)))) == made
