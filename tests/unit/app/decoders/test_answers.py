"""What decoder processes answer is checked before it is used."""

import asyncio
from dataclasses import replace
from typing import cast

import msgspec
import pytest

from app.decoders.memory import SharedArea, new_area
from app.decoders.messages import (
    Bounds,
    Broken,
    DecodeTask,
    Encode,
    Encoded,
    Frame,
    Pixels,
    Seen,
    Wanted,
)
from app.decoders.pool import ANY, DecoderProcess, read
from models import codec
from models.codec import Encoding, ImageFormat, ImageInfo
from tests.pictures import jpeg, png

SIDE = 700
PICTURE = ImageInfo(ImageFormat.PNG, SIDE, SIDE, 1, 1, "RGB", fast_jpeg=False)
HEADER = Seen(PICTURE, 0.0, 0)
TASK = DecodeTask(100, SIDE * SIDE, 1.0, ANY)
ENCODE = Encode((1, 1, 3), ImageFormat.PNG, Encoding(), None, None, 1.0)


class Decoder:
    """A process that has written nothing to its area."""

    area = SharedArea(new_area(4 * SIDE * SIDE, 1 << 20))


DECODER = cast(DecoderProcess, Decoder)


@pytest.mark.parametrize(("stated", "seen"), [(-1, None), (0, None), (1000, None), (1 << 33,) * 2])
@pytest.mark.parametrize("wanted", [Wanted.PIXELS, Wanted.COLOUR])
def test_a_process_cannot_state_less_memory_than_its_image_takes(
    wanted: Wanted, stated: int, seen: int | None
) -> None:
    answer = msgspec.structs.replace(HEADER, memory=stated)
    task = msgspec.structs.replace(TASK, wanted=wanted)
    found = asyncio.run(read(DECODER, task, answer))
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
        (Seen(replace(PICTURE, orientation=9), 0.0, 0), ANY),
        (Encoded(1), ANY),
    ],
)
def test_answers_that_cannot_be_end_the_process(frame: Frame, bounds: Bounds) -> None:
    task = msgspec.structs.replace(TASK, max_pixels=4 * SIDE * SIDE, bounds=bounds)
    for asked, answer in ((task, frame), (ENCODE, Encoded(1 << 40))):
        with pytest.raises((Broken, ValueError)):
            asyncio.run(read(DECODER, asked, answer))
