"""What can be asked of an encoder: each option seen in the file, each wrong combination refused."""

import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image as PillowImage

from models.codec import Chroma, Encoding, ImageFormat, decode, encode
from models.domain.errors import InvalidParameter
from models.domain.image import Image, Pixels

LIMIT = 50_000_000
BASELINE, PROGRESSIVE = 0xC0, 0xC2
FACTORS: dict[Chroma, int] = {"420": 0x22, "422": 0x21, "444": 0x11}
TINY = Image(np.zeros((1, 1, 3), np.uint8))


def picture(channels: int, height: int = 61, width: int = 83) -> Image:
    """Return slopes with grain; an alpha plane has clear, half clear and opaque pixels."""
    random = np.random.default_rng(channels)
    y, x = np.mgrid[0:height, 0:width]
    planes = np.stack([x * 3, y * 4, (x + y) * 2, x * 3][:channels], axis=-1)
    pixels = (planes + random.integers(0, 12, planes.shape)).clip(0, 255).astype(np.uint8)
    if channels == 4:
        pixels[..., 3] = random.choice(np.array([0, 128, 255], np.uint8), (height, width))
    return Image(pixels)


def pixels_of(data: bytes) -> Pixels:
    image = decode(data, max_pixels=LIMIT).image
    assert isinstance(image, Image)
    return image.pixels


def frame(jpeg: bytes) -> tuple[int, list[int]]:
    """Return the SOF marker, and the sampling factors of each component."""
    at = 2
    while True:
        marker, length = jpeg[at + 1], int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            n = jpeg[at + 9]
            return marker, [jpeg[at + 11 + 3 * component] for component in range(n)]
        at += 2 + length


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("chroma", FACTORS)
def test_a_jpeg_has_the_frame_and_the_sampling_factors_asked_for(
    chroma: Chroma, progressive: bool
) -> None:
    asked = Encoding(chroma=chroma, progressive=progressive)
    marker, factors = frame(encode(picture(3), ImageFormat.JPEG, asked))
    assert marker == (PROGRESSIVE if progressive else BASELINE)
    assert factors == [FACTORS[chroma], 0x11, 0x11]


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("chroma", [None, *FACTORS])
def test_a_grey_jpeg_has_one_plane_whatever_its_chroma_is_to_be(
    chroma: Chroma | None, progressive: bool
) -> None:
    asked = Encoding(chroma=chroma, progressive=progressive)
    assert frame(encode(picture(1), ImageFormat.JPEG, asked))[1] == [0x11]


@pytest.mark.parametrize("quality", [96, 100])  # TurboJPEG takes a faster DCT below
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("chroma", FACTORS)
def test_a_progressive_jpeg_has_the_pixels_of_the_baseline_one(
    chroma: Chroma, channels: int, quality: int
) -> None:
    baseline, progressive = (
        encode(picture(channels), ImageFormat.JPEG, Encoding(quality, again, chroma))
        for again in (False, True)
    )
    np.testing.assert_array_equal(pixels_of(baseline), pixels_of(progressive))


@pytest.mark.parametrize("quality", [94, 100])
def test_a_progressive_jpeg_of_noise_is_written_whole(quality: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    asked = Encoding(quality, progressive=True, chroma="444")
    data = encode(Image(noise), ImageFormat.JPEG, asked)
    assert frame(data)[0] == PROGRESSIVE
    assert len(data) > 300 * 400
    file = BytesIO()
    PillowImage.fromarray(noise).save(file, "JPEG", quality=quality, subsampling="4:4:4")
    np.testing.assert_array_equal(pixels_of(data), pixels_of(file.getvalue()))


def test_a_jpeg_that_simplejpeg_can_write_has_its_bytes() -> None:
    pixels = picture(3).pixels
    for chroma in FACTORS:
        data = encode(Image(pixels), ImageFormat.JPEG, Encoding(77, chroma=chroma))
        assert data == simplejpeg.encode_jpeg(pixels, 77, "RGB", chroma)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_lossless_webp_gives_every_pixel_back_clear_ones_too(channels: int) -> None:
    image = picture(channels)
    data = encode(image, ImageFormat.WEBP, Encoding(lossless=True))
    assert b"VP8L" in data[:64]
    expected = np.repeat(image.pixels, 3, axis=2) if channels == 1 else image.pixels
    np.testing.assert_array_equal(pixels_of(data), expected)


def test_quality_means_nothing_to_a_lossless_webp() -> None:
    lossless = [Encoding(quality, lossless=True) for quality in (None, 1, 100)]
    assert len({encode(picture(3), ImageFormat.WEBP, asked) for asked in lossless}) == 1


def deflated(png: bytes) -> bytes:
    """Return the zlib stream of a PNG, joined from all its IDAT chunks."""
    found, at = b"", 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            found += png[at + 8 : at + 8 + length]
        at += 12 + length
    return found


@pytest.mark.parametrize("level", [None, *range(10)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_of_any_level_gives_every_pixel_back(channels: int, level: int | None) -> None:
    image = picture(channels)
    data = encode(image, ImageFormat.PNG, Encoding(png_level=level))
    np.testing.assert_array_equal(pixels_of(data), image.pixels)
    assert len(zlib.decompress(deflated(data))) == image.height * (1 + image.width * channels)


def test_png_levels_go_from_stored_to_smallest() -> None:
    stored, fast, small = (
        len(encode(picture(3, 200, 300), ImageFormat.PNG, Encoding(png_level=level)))
        for level in (0, 1, 9)
    )
    assert stored > 200 * 300 * 3 > fast > small


@pytest.mark.parametrize("chroma", FACTORS)
def test_an_avif_has_the_chroma_asked_for(chroma: Chroma) -> None:
    data = encode(picture(3), ImageFormat.AVIF, Encoding(chroma=chroma))
    at = data.index(b"av1C") + 4
    bits = data[at + 2]  # AV1CodecConfigurationRecord: … monochrome, subsampling x, y, position
    assert (bits >> 3 & 1, bits >> 2 & 1) == {"420": (1, 1), "422": (1, 0), "444": (0, 0)}[chroma]


def test_a_slower_avif_is_another_file_of_the_same_picture() -> None:
    fast, slow = (
        encode(picture(3), ImageFormat.AVIF, Encoding(avif_speed=speed)) for speed in (10, 5)
    )
    assert fast != slow
    assert np.abs(pixels_of(fast).astype(int) - pixels_of(slow)).mean() < 4


ONLY: dict[str, tuple[Any, list[ImageFormat]]] = {
    "progressive": (True, [ImageFormat.JPEG]),
    "chroma": ("444", [ImageFormat.JPEG, ImageFormat.AVIF]),
    "lossless": (True, [ImageFormat.WEBP]),
    "png_level": (0, [ImageFormat.PNG]),
    "avif_speed": (0, [ImageFormat.AVIF]),
}


@pytest.mark.parametrize("format", ["jpeg", "png", "webp", "avif"])
@pytest.mark.parametrize("name", ONLY)
def test_an_option_of_another_format_is_refused_with_its_path_and_value(
    name: str, format: str
) -> None:
    (given, having), chosen = ONLY[name], ImageFormat(format)
    asked = Encoding(**{name: given})
    if chosen in having:
        asked.check(chosen)
        assert encode(TINY, chosen, asked)
        return
    with pytest.raises(InvalidParameter, match=f"^{name}: an option of .*{having[0].name}") as no:
        asked.check(chosen)
    assert [(e.path, e.given) for e in no.value.errors] == [(name, given)]
    assert f"to be {chosen.name}" in no.value.detail


def test_all_that_is_wrong_is_said_at_once() -> None:
    everything: dict[str, Any] = {name: given for name, (given, _) in ONLY.items()}
    with pytest.raises(InvalidParameter) as no:
        Encoding(**everything).check(ImageFormat.PNG)
    paths = [e.path for e in no.value.errors]
    assert paths == ["progressive", "chroma", "lossless", "avif_speed"]


def test_an_option_that_is_off_fits_every_format() -> None:
    for format in (ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP):
        Encoding(progressive=False, lossless=False).check(format)


def test_pillow_reads_what_was_written() -> None:
    data = encode(picture(3), ImageFormat.JPEG, Encoding(progressive=True))
    assert PillowImage.open(BytesIO(data)).info["progressive"] == 1
