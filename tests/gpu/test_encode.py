"""Results encoded on the device: JPEGs that decode about as near to the pixels as libjpeg's."""

from io import BytesIO

import numpy as np
import pytest
import simplejpeg
from PIL import Image as PillowImage

from models.codec import Encoding, ImageFormat, encode, finished, pixels_of
from models.codec.jpeg import inspect
from models.domain.image import Image, Jpeg, Pixels, Subsampling
from tests.emulation.staging import noise
from tests.gpu.conftest import as_jpeg, photos
from tests.gpu.equality import Run
from workers.filters.registry import parse_chain
from workers.operations import DeviceJpeg, FilterChain

FILTERS = parse_chain([{"name": "gaussian_blur", "sigma": 1}, {"name": "invert"}])
SUBSAMPLINGS = [Subsampling.S444, Subsampling.S422, Subsampling.S420]


def specified(pixels: Pixels) -> Pixels:
    """Return the pixels as the specification of the filters makes them, uint8 (H, W, C)."""
    for each in FILTERS:
        pixels = each.apply(pixels)
    return pixels


def error(one: Pixels, other: Pixels) -> float:
    """Return the mean squared error of two images, in squares of levels."""
    return float(((one.astype(float) - other) ** 2).mean())


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("quality", [50, 90, 98])
def test_photos_come_back_about_as_near_as_libjpegs(
    run: Run, subsampling: Subsampling, quality: int
) -> None:
    sources = [as_jpeg(data) for data in photos()[:20]]
    chain = FilterChain(FILTERS, DeviceJpeg(quality, subsampling))
    for found, source in zip(run(chain, sources).values, sources, strict=True):
        expected = specified(pixels_of(source).pixels)
        if expected.shape[2] == 1:
            assert isinstance(found, Image)
            continue
        assert isinstance(found, Jpeg)
        made = inspect(found.data.tobytes())
        assert made is not None
        assert (made.height, made.width) == expected.shape[:2] == (found.height, found.width)
        assert made.subsampling is subsampling
        near = simplejpeg.encode_jpeg(expected, quality, "RGB", subsampling.replace(":", ""))
        theirs = error(simplejpeg.decode_jpeg(near), expected)
        ours = error(np.asarray(PillowImage.open(BytesIO(found.data.tobytes()))), expected)
        assert ours < 1.3 * theirs + 1


def test_odd_sizes_share_a_batch_and_grey_and_alpha_stay_pixels(run: Run) -> None:
    sizes = [(1, 1), (1, 64), (97, 1), (17, 13), (127, 131), (500, 375)]
    images = [Image(noise(h, w, c)) for h, w in sizes for c in (1, 3, 4)]
    chain = FilterChain(FILTERS, DeviceJpeg(95, Subsampling.S444))
    for found, image in zip(run(chain, images).values, images, strict=True):
        expected = specified(image.pixels)
        if isinstance(found, Image):
            assert image.channels != 3 or image.n_pixels < 2000
            assert np.array_equal(found.pixels, expected)
        else:
            assert isinstance(found, Jpeg)
            assert image.channels == 3
            pixels = simplejpeg.decode_jpeg(found.data.tobytes())
            assert error(pixels, expected) < 40


def test_a_copyright_is_put_into_a_file_made_there(run: Run) -> None:
    from models.codec import decode

    source = as_jpeg(photos()[0])
    (found,) = run(FilterChain(FILTERS, DeviceJpeg(90, Subsampling.S420)), [source]).values
    assert isinstance(found, Jpeg)
    data = finished(found, copyright="me")
    assert decode(data, max_pixels=1 << 24).copyright == "me"
    here = encode(Image(specified(pixels_of(source).pixels)), ImageFormat.JPEG, Encoding(90))
    assert len(data) < 2 * len(here)
