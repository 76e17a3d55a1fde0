"""JPEGs decoded by the engines in hardware: the same bytes as libjpeg-turbo's."""

from collections.abc import Sequence

import numpy as np
import pytest

from models.codec import pixels_of
from models.codec.jpeg import inspect
from models.domain.errors import ServiceError
from models.domain.image import Image, Jpeg
from tests.gpu.conftest import MAX_BATCH_SIZE, as_jpeg, jpeg, photos
from tests.gpu.equality import Run
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


@pytest.mark.parametrize("options", [{"restart_marker_blocks": 3}, {"restart_marker_rows": 1}])
def test_sound_restart_markers_change_nothing(run: Run, options: dict[str, int]) -> None:
    """Front ends send no such files, because unsound ones cannot be told from them."""
    pixels = np.random.default_rng(3).integers(0, 256, (123, 211, 3), np.uint8)
    sources = []
    for subsampling in (0, 1, 2):
        data = jpeg(pixels, subsampling=subsampling, **options)
        found = inspect(data)
        assert found is not None
        stream = np.frombuffer(data, np.uint8)
        sources.append(Jpeg(stream, 123, 211, 1, found.subsampling))
    check(run, sources)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_comes_out_upright(run: Run, orientation: int) -> None:
    from PIL import Image as PillowImage

    exif = PillowImage.Exif()
    exif[274] = orientation
    pixels = np.random.default_rng(5).integers(0, 256, (40, 71, 3), np.uint8)
    source = as_jpeg(jpeg(pixels, subsampling=2, exif=exif))
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
