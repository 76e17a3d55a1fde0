"""The count of the blocks of JPEGs, on the CPU by emulation, against what libjpeg says of them."""

import sys
from collections.abc import Sequence
from mmap import mmap
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image as PillowImage

from models.codec import encoded, pixels_of
from models.domain.errors import ServiceError, Undecodable
from models.domain.image import Jpeg, Subsampling
from tests.chaos.hostile.damaged import files
from tests.emulation.staging import CPU, EmulatedKernels, jpeg_file, noise, staging_slot
from tests.pictures import drawing
from tests.pictures import encoded as file_of
from workers.engines.cuda.jpeg_blocks import FILE, SPARE, ReadableMemory, fits

EVERY = (Subsampling.GREY, Subsampling.S444, Subsampling.S422, Subsampling.S420)
SIZES = [(1, 1), (8, 8), (17, 16), (100, 75), (240, 320)]
KERNELS = EmulatedKernels()


def damaged(jpegs: Sequence[Jpeg], readable: ReadableMemory | None = None) -> list[int]:
    """Return the indexes of the damaged files, checked in batches of 16."""
    found: list[int] = []
    for start in range(0, len(jpegs), 16):
        slot, batch = staging_slot(1 << 24, readable=readable), jpegs[start : start + 16]
        places = np.array([(j.data.ctypes.data, len(j.data)) for j in batch], np.uint64)
        slot.jpeg_blocks.check(KERNELS, dict(enumerate(batch)), places)
        found += [start + index for index in slot.jpeg_blocks.damaged()]
    return found


def cut(jpeg: Jpeg, share: float) -> Jpeg:
    """Return the file cut behind this share of its entropy-coded data, and closed by an EOI."""
    file = jpeg.data.tobytes()
    start = file.index(b"\xff\xda") + 14
    end = start + int((len(file) - 2 - start) * share)
    end -= file[:end].endswith(b"\xff")
    data = np.frombuffer(file[:end] + b"\xff\xd9", np.uint8)
    return Jpeg(data, jpeg.height, jpeg.width, jpeg.orientation, jpeg.subsampling)


def saved(image: PillowImage.Image, **options: object) -> Jpeg:
    found = encoded(file_of(image, "JPEG", **options), max_pixels=1 << 24)
    assert found is not None
    assert isinstance(found.image, Jpeg)
    return found.image


@pytest.mark.parametrize("subsampling", EVERY)
def test_good_jpegs_of_any_size_are_whole_and_cut_ones_are_not(subsampling: Subsampling) -> None:
    good = [jpeg_file(*size, 1, subsampling) for size in SIZES]
    shares = (0.0, 0.3, 0.7, 0.98)
    bad = [cut(each, share) for each in good[1:] for share in shares]
    assert damaged([*good, *bad, *good]) == [*range(len(good), len(good) + len(bad))]


class Driver:
    """The part of CuPy's runtime that keeps the pages of memory."""

    CUDARuntimeError = RuntimeError

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    def hostRegister(self, start: int, n_bytes: int, _flags: int) -> None:
        self.kept[start] = n_bytes

    def hostUnregister(self, start: int) -> None:
        del self.kept[start]


def test_files_in_readable_memory_are_read_there_until_nothing_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, readable = Driver(), ReadableMemory(CPU)
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(runtime=driver))
    files = [jpeg_file(*size, 1, Subsampling.S420) for size in SIZES]
    memory = np.frombuffer(mmap(-1, 1 << 20), np.uint8)
    readable.add(memory, 1 << 19)
    rows = np.zeros(len(files) + 1, FILE)
    jpegs = []
    for row, file in enumerate([*files, files[0]]):
        start = row << 16 if row < len(files) else 1 << 19
        memory[start : start + len(file.data)] = file.data
        data = memory[start : start + len(file.data)]
        jpegs.append(Jpeg(data, file.height, file.width, 1, file.subsampling))
        rows[row] = data.ctypes.data, len(data), 0, 0
    assert readable.holds(rows).tolist() == [True] * len(files) + [False]
    assert damaged([*jpegs, cut(jpegs[4], 0.5)], readable) == [len(jpegs)]
    del memory, data
    assert len(driver.kept) == 1, "jpegs still use the memory"
    del jpegs
    assert driver.kept == {}
    assert not readable.holds(rows).any()


def test_jpegs_that_are_stored_turned_are_whole() -> None:
    assert damaged([jpeg_file(40, 99, turn, Subsampling.S422) for turn in range(1, 9)]) == []


@pytest.mark.parametrize(
    "options",
    [{"quality": 5}, {"quality": 100}, {"optimize": True}, {"optimize": True, "quality": 30}],
    ids=str,
)
def test_any_tables_are_read(options: dict[str, object]) -> None:
    images = [drawing(400, 300), drawing(31, 200, 1), PillowImage.new("RGB", (700, 500), (9, 8, 7))]
    images += [drawing(333, 222, 2, "L"), PillowImage.fromarray(noise(90, 90, 3))]
    assert damaged([saved(each, **options) for each in images]) == []


def test_more_data_than_the_blocks_need_are_for_the_cpu() -> None:
    good = saved(drawing())
    data = np.frombuffer(good.data.tobytes()[:-2] + b"\x55\xaa\xff\xd9", np.uint8)
    assert damaged([Jpeg(data, good.height, good.width, 1, good.subsampling)]) == [0]


def test_a_cut_between_two_blocks_is_found() -> None:
    """The bits of a grey image without detail are the same for each block but the first: 6 bits."""
    whole = saved(PillowImage.new("L", (640, 640), 128))
    start = whole.data.tobytes().index(b"\xff\xda") + 10
    half = whole.data[: start + 6 * 3200 // 8].tobytes() + b"\xff\xd9"
    data = np.frombuffer(half, np.uint8)
    assert damaged([whole, Jpeg(data, 640, 640, 1, Subsampling.GREY)]) == [1]


def test_no_file_is_whole_that_libjpeg_refuses() -> None:
    kept: list[Jpeg] = []
    for _, data in files(400):
        try:
            found = encoded(data, max_pixels=1 << 24)
        except ServiceError:
            continue
        if found is not None and isinstance(found.image, Jpeg) and fits(found.image):
            kept.append(found.image)
    bad = {*damaged(kept)}
    refused = set[int]()
    for index, image in enumerate(kept):
        try:
            pixels_of(image)
        except Undecodable:
            refused.add(index)
    assert refused <= bad
    assert len(bad) > 20


def test_data_that_are_longer_than_the_memory_of_the_slot_are_for_the_cpu() -> None:
    good = saved(drawing(16, 16))
    long = np.concatenate([good.data, np.zeros(2 * SPARE, np.uint8)])
    assert fits(good)
    assert not fits(Jpeg(long, 16, 16, 1, good.subsampling))
