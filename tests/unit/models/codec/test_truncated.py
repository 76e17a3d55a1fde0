"""Every truncation point of a small file of each format: an image or an error, and quickly."""

import time

import pytest

from models import codec
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import ServiceError
from tests import hostile
from tests.pictures import as_image

FORMATS = [each for each in ImageFormat if each is not ImageFormat.AVIF or each in ENCODABLE]
OPTIONS: dict[str, dict[str, object]] = {
    "jpeg": {"progressive": True},
    "tiff": {"compression": "tiff_lzw"},
    "gif": {"interlace": 1},
    "webp": {"lossless": True},
}
SLOWEST = 1.0
"""CPU seconds of one; none took 0.02 where this was written."""


@pytest.mark.parametrize("format_", FORMATS)
def test_every_truncation_gives_an_image_or_an_error(format_: ImageFormat) -> None:
    data = hostile.small(format_.name, (24, 17), **OPTIONS.get(format_.value, {}))
    slowest, images, statuses = 0.0, 0, set()
    for length in range(len(data)):
        start = time.thread_time()
        try:
            found = codec.decode(data[:length], max_pixels=1_000_000)
        except ServiceError as error:
            statuses.add(error.status)
        else:
            images += 1
            assert as_image(found.image).pixels.shape[:2] == (17, 24), length
        slowest = max(slowest, time.thread_time() - start)
    assert statuses == {415, 422}
    assert slowest < SLOWEST
    assert images < len(data)
    assert as_image(codec.decode(data, max_pixels=1_000_000).image).pixels.shape[:2] == (17, 24)
