"""JPEGs decoded by the engines in hardware: the same bytes as libjpeg-turbo's."""

from collections.abc import Sequence
from dataclasses import replace
from mmap import mmap

import numpy as np
import pytest

from models.codec import pixels_of
from models.codec.colour import cicp_profile
from models.domain.errors import ServiceError, Undecodable
from models.domain.image import Image, Jpeg, Pixels
from tests.gpu.conftest import MAX_BATCH_SIZE, as_jpeg, jpeg, photos
from tests.gpu.equality import Run
from workers.engines.cuda.engine import CudaEngine
from workers.filters.registry import parse_chain
from workers.operations import Classify, FilterChain

TWICE = FilterChain(parse_chain([{"name": "invert"}, {"name": "invert"}]))
ODD = [*range(1, 20), 31, 32, 33, 63, 64, 65]


def check(run: Run, sources: Sequence[Jpeg]) -> None:
    """Check that JPEGs decoded on the device, filtered twice, are the pixels of libjpeg."""
    for start in range(0, len(sources), MAX_BATCH_SIZE):
        batch = sources[start : start + MAX_BATCH_SIZE]
        for found, source in zip(run(TWICE, batch).values, batch, strict=True):
            assert isinstance(found, Image)
            assert np.array_equal(found.pixels, pixels_of(source).pixels), source


def test_photos_of_all_subsamplings_in_one_batch_are_libjpegs_bytes(run: Run) -> None:
    check(run, [as_jpeg(data) for data in photos()])


@pytest.mark.parametrize("subsampling", [0, 1, 2, None], ids=["444", "422", "420", "grey"])
def test_every_odd_size_is_libjpegs_bytes(run: Run, subsampling: int | None) -> None:
    random = np.random.default_rng(7)
    sources = []
    for height, width in [(h, w) for h in ODD for w in ODD]:
        shape = (height, width, 1 if subsampling is None else 3)
        options = {} if subsampling is None else {"subsampling": subsampling}
        sources.append(as_jpeg(jpeg(random.integers(0, 256, shape, np.uint8), **options)))
    check(run, sources)


def test_files_in_readable_memory_and_across_its_end_are_libjpegs_bytes(
    run: Run, engine: CudaEngine
) -> None:
    memory = np.frombuffer(mmap(-1, 1 << 21), np.uint8)
    engine.share(memory, 1 << 20)
    sources = []
    for data, start in zip(photos(), (0, (1 << 20) - 4096, 3 << 19), strict=False):
        source, lying = as_jpeg(data), memory[start : start + len(data)]
        lying[:] = np.frombuffer(data, np.uint8)
        sources.append(replace(source, data=lying[: len(source.data)]))
    check(run, sources)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_comes_out_upright_and_in_srgb(run: Run, orientation: int) -> None:
    from PIL import Image as PillowImage

    exif = PillowImage.Exif()
    exif[274] = orientation
    pixels = np.random.default_rng(5).integers(0, 256, (40, 71, 3), np.uint8)
    profile = cicp_profile(12, 13, grey=False) if orientation % 2 else None
    source = as_jpeg(jpeg(pixels, subsampling=2, exif=exif, icc_profile=profile))
    assert (source.shaper is not None) is (profile is not None)
    assert source.orientation == orientation
    check(run, [source])


def test_what_the_engines_refuse_is_decoded_here_and_its_neighbours_are_unharmed(run: Run) -> None:
    pixels = np.random.default_rng(9).integers(0, 256, (50, 60, 3), np.uint8)
    good = as_jpeg(jpeg(pixels, subsampling=2))
    progressive = np.frombuffer(jpeg(pixels, subsampling=2, progressive=True), np.uint8)
    broken = np.frombuffer(jpeg(pixels)[:300], np.uint8)
    disguised = [Jpeg(data, 50, 60, 1, good.subsampling) for data in (progressive, broken)]
    values = run(TWICE, [good, disguised[0], disguised[1], good]).values
    assert isinstance(values[2], ServiceError)
    for index in (0, 1, 3):
        found = values[index]
        assert isinstance(found, Image)
        assert np.array_equal(found.pixels, pixels_of(good).pixels) or index == 1
    labels = run(Classify(), [good, disguised[1], good]).values
    assert isinstance(labels[1], ServiceError)
    assert labels[0] == labels[2]


def test_damage_inside_the_data_harms_no_neighbour_and_no_later_batch(run: Run) -> None:
    """Bit errors that leave the stream well formed: the engines do not report them."""
    random = np.random.default_rng(11)
    pixels = np.add.outer(np.arange(90), np.arange(120))[..., None].repeat(3, 2).astype(np.uint8)
    file = jpeg(pixels, subsampling=2)
    good, start = as_jpeg(file), file.index(b"\xff\xda") + 20
    for _ in range(100):
        damaged = np.frombuffer(file, np.uint8).copy()
        for at in random.integers(start, len(damaged) - 4, 5):
            if 0xFF not in damaged[at - 1 : at + 2]:
                damaged[at] = random.integers(0, 255)
        bad = Jpeg(damaged, good.height, good.width, 1, good.subsampling)
        values = run(TWICE, [good, bad, good]).values
        for index in (0, 2):
            found = values[index]
            assert isinstance(found, Image)
            assert np.array_equal(found.pixels, pixels_of(good).pixels)


def closed(file: bytes, share: float) -> bytes:
    """Return a JPEG that was cut behind this share of its entropy-coded data, closed by an EOI."""
    start = file.index(b"\xff\xda") + 14
    end = start + max(1, int((len(file) - 2 - start) * share))
    return file[: end - file[:end].endswith(b"\xff")] + b"\xff\xd9"


def scene(height: int, width: int, seed: int, level: int) -> Pixels:
    """Return a smooth picture with some noise around a level: uint8 (height, width, 3)."""
    random = np.random.default_rng(seed)
    ramp = np.add.outer(np.arange(height), np.arange(width))[..., None] % 64
    noise = random.integers(0, 24, (height, width, 3))
    return (ramp + noise + level).clip(0, 255).astype(np.uint8)


SHARES = (0.05, 0.3, 0.5, 0.9, 0.99)


@pytest.mark.parametrize("subsampling", [0, 1, 2], ids=["444", "422", "420"])
@pytest.mark.parametrize("side", [200, 641, 1500, 3000])
def test_a_cut_jpeg_that_was_closed_is_refused_and_shows_no_earlier_image(
    run: Run, side: int, subsampling: int
) -> None:
    """The images are two at a time, in each of the shares, after others of the same size."""
    height, width = side, side * 3 // 4 + 1
    bright = as_jpeg(jpeg(scene(height, width, 1, 180), subsampling=subsampling))
    file = jpeg(scene(height, width, 2, 20), subsampling=subsampling)
    good = as_jpeg(file)
    for share in SHARES:
        for _ in range(3):  # once for each slot
            run(TWICE, [bright, bright])
        data = np.frombuffer(closed(file, share), np.uint8)
        cut = Jpeg(data, good.height, good.width, good.orientation, good.subsampling)
        with pytest.raises(Undecodable):
            pixels_of(cut)
        for operation in (TWICE, Classify()):
            refused, whole = run(operation, [cut, good]).values
            assert isinstance(refused, Undecodable), (share, operation)
            assert not isinstance(whole, ServiceError)
        assert isinstance(whole := run(TWICE, [good]).values[0], Image)
        assert np.array_equal(whole.pixels, pixels_of(good).pixels)


def test_good_jpegs_are_not_decoded_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole files stay on the device: the count of their blocks is right for every photo."""

    def refused(*_: object) -> None:
        raise AssertionError("a good file was decoded on the CPU as well")

    monkeypatch.setattr(CudaEngine, "_decode_here", refused)
    images = [as_jpeg(data) for data in photos()]
    for start in range(0, len(images), MAX_BATCH_SIZE):
        run(Classify(), images[start : start + MAX_BATCH_SIZE])
