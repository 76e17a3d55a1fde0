"""Every filter: the bytes of its specification, in batches of mixed sizes."""

import numpy as np
import pytest

from models.codec import pixels_of
from models.domain.image import Image
from tests.emulation.staging import noise
from tests.gpu.conftest import as_jpeg, photos
from tests.gpu.equality import NAMES, Run, compared, specified
from workers.filters.registry import FILTERS, parse_one
from workers.operations import FilterChain


@pytest.mark.parametrize("name", NAMES)
def test_a_filter_gives_the_bytes_of_its_specification(run: Run, name: str) -> None:
    found = compared(run, name)
    tolerance = FILTERS[name].device_tolerance
    assert found.different <= tolerance * found.samples, found.where
    assert found.most_off <= (1 if tolerance else 0), found.where


@pytest.mark.parametrize("shape", ["ideal", "gaussian", "butterworth"])
def test_notches_are_within_a_level_also_where_halves_are_frequent(run: Run, shape: str) -> None:
    chosen = {"kind": "notch", "shape": shape, "cutoff": 0.1, "notches": [[0.5, 0.5], [0.1, 0.2]]}
    chain = FilterChain((parse_one("fft_filter", chosen),))
    pixels = noise(127, 130, 4)
    pixels[..., 0] = np.add.outer(np.arange(127), np.arange(130)) % 2 * 255
    (found,) = run(chain, [Image(pixels)]).values
    assert isinstance(found, Image)
    assert np.abs(found.pixels.astype(np.int16) - specified(chain, pixels)).max() <= 1


def test_runs_of_tables_give_the_bytes_of_their_filters_one_by_one(run: Run) -> None:
    names = [["invert", "gamma", "posterize"], ["solarize"], ["levels", "brightness"]]
    chains = [
        FilterChain((*(parse_one(n, {}) for n in run_), parse_one("sobel", {}))) for run_ in names
    ]
    for chain in chains:
        for image in (Image(noise(60, 80, channels)) for channels in (1, 3, 4)):
            (found,) = run(chain, [image]).values
            assert isinstance(found, Image)
            assert np.array_equal(found.pixels, specified(chain, image.pixels))


def test_a_chain_from_jpeg_to_pixels_never_leaves_the_device(run: Run) -> None:
    source = as_jpeg(photos()[0])
    names = ["gaussian_blur", "saturation", "median", "unsharp_mask", "contrast"]
    chain = FilterChain(tuple(parse_one(name, {}) for name in names))
    (found,) = run(chain, [source]).values
    assert isinstance(found, Image)
    assert np.array_equal(found.pixels, specified(chain, pixels_of(source).pixels))
