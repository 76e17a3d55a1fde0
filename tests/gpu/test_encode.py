"""Results encoded on the device: the files have the bytes that the CPU writes."""

import numpy as np
import pytest

from models.codec import Encoding, ImageFormat, decode, encode, finished, pixels_of
from models.codec.encoder import Chroma
from models.domain.image import Image, Jpeg, Source, Subsampling
from tests.emulation.staging import noise
from tests.gpu.conftest import as_jpeg, photos
from tests.gpu.equality import Run, specified
from workers.filters.registry import parse_chain
from workers.operations import DeviceJpeg, FilterChain

FILTERS = parse_chain([{"name": "gaussian_blur", "sigma": 1}, {"name": "invert"}])
CHROMA: dict[Subsampling, Chroma] = {
    Subsampling.S444: "444",
    Subsampling.S422: "422",
    Subsampling.S420: "420",
}


def file_of(source: Source, asked: DeviceJpeg) -> bytes:
    """Return the file of a filtered image as the CPU makes it."""
    pixels = specified(FilterChain(FILTERS), pixels_of(source).pixels)
    chroma = CHROMA[asked.subsampling]
    return encode(Image(pixels), ImageFormat.JPEG, Encoding(asked.quality, chroma=chroma))


@pytest.mark.parametrize("subsampling", CHROMA)
@pytest.mark.parametrize("quality", [1, 50, 75, 90, 95, 96, 100])
def test_photos_have_the_bytes_of_the_cpu(run: Run, subsampling: Subsampling, quality: int) -> None:
    sources = [as_jpeg(data) for data in photos()[:20]]
    asked = DeviceJpeg(quality, subsampling)
    values = run(FilterChain(FILTERS, asked), sources).values
    for found, source in zip(values, sources, strict=True):
        assert isinstance(found, Jpeg)
        assert found.data.tobytes() == file_of(source, asked)
        assert (found.height, found.width) == (source.height, source.width)


def test_odd_sizes_share_a_batch_and_alpha_and_narrow_images_stay_pixels(run: Run) -> None:
    sizes = [(1, 1), (1, 64), (97, 1), (17, 33), (127, 131), (500, 375), (16, 3000)]
    images = [Image(noise(h, w, c)) for h, w in sizes for c in (1, 3, 4)]
    asked = DeviceJpeg(90, Subsampling.S420)
    for found, image in zip(run(FilterChain(FILTERS, asked), images).values, images, strict=True):
        if isinstance(found, Jpeg):
            assert found.data.tobytes() == file_of(image, asked)
        else:
            assert isinstance(found, Image)
            narrow = min(image.height, image.width) < 16
            large = len(file_of(image, asked)) >= image.n_pixels * image.channels
            assert image.channels == 4 or narrow or large
            assert np.array_equal(found.pixels, specified(FilterChain(FILTERS), image.pixels))


def test_a_copyright_is_put_into_a_file_made_there(run: Run) -> None:
    source = as_jpeg(photos()[0])
    (found,) = run(FilterChain(FILTERS, DeviceJpeg(90, Subsampling.S420)), [source]).values
    assert isinstance(found, Jpeg)
    data = finished(found, copyright="me")
    assert decode(data, max_pixels=1 << 24).copyright == "me"
