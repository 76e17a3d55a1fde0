"""What `codec.encode` writes, what `codec.flatten` composes, and what both refuse."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL.JpegImagePlugin import JpegImageFile

from models.codec import ENCODABLE, Encoding, ImageFormat, decode, encode, flatten, probe
from models.domain.errors import InvalidParameter, Unprocessable
from models.domain.image import Image, Pixels
from tests.pictures import as_image

LIMIT = 50_000_000
LOSSY = (ImageFormat.JPEG, ImageFormat.WEBP, ImageFormat.AVIF)


def smooth(channels: int, height: int = 40, width: int = 50) -> Image:
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 4, y * 5, (x + y) * 2, 255 - x * 3]
    return Image(np.stack(planes[:channels], axis=-1).astype(np.uint8))


def again(data: bytes) -> Image:
    return as_image(decode(data, max_pixels=LIMIT).image)


def difference(a: Pixels, b: Pixels) -> float:
    return float(np.abs(a.astype(np.int16) - b).mean())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_png_gives_every_pixel_back(channels: int) -> None:
    image = smooth(channels)
    np.testing.assert_array_equal(again(encode(image, ImageFormat.PNG)).pixels, image.pixels)


@pytest.mark.parametrize("format", LOSSY)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_lossy_formats_come_close(format: ImageFormat, channels: int) -> None:
    image = smooth(channels)
    data = encode(image, format)
    assert probe(data, max_pixels=LIMIT).format is format
    back = again(data)
    assert difference(flatten(back).pixels, flatten(image).pixels) < 4


@pytest.mark.parametrize("format", [ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.AVIF])
def test_grey_is_written_as_grey(format: ImageFormat) -> None:
    assert again(encode(smooth(1), format)).channels == 1


@pytest.mark.parametrize("format", [ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.AVIF])
def test_alpha_is_written_where_the_format_has_it(format: ImageFormat) -> None:
    back = again(encode(smooth(4), format))
    assert back.channels == 4
    assert difference(back.pixels[..., 3], smooth(4).pixels[..., 3]) < 2


def test_a_jpeg_of_an_image_with_alpha_is_flattened_on_white() -> None:
    clear = Image(np.zeros((16, 16, 4), np.uint8))
    assert again(encode(clear, ImageFormat.JPEG)).pixels.min() == 255


def test_a_jpeg_is_baseline_with_halved_chroma() -> None:
    file = PillowImage.open(BytesIO(encode(smooth(3), ImageFormat.JPEG)))
    assert "progressive" not in file.info
    assert isinstance(file, JpegImageFile)
    assert file.layer == [(1, 2, 2, 0), (2, 1, 1, 1), (3, 1, 1, 1)]


@pytest.mark.parametrize("format", LOSSY)
def test_a_lower_quality_gives_a_smaller_file(format: ImageFormat) -> None:
    noise = Image(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    low, default, high = (len(encode(noise, format, Encoding(quality=q))) for q in (5, None, 100))
    assert low < default < high


def test_png_takes_a_quality_and_stays_lossless() -> None:
    image = smooth(3)
    assert encode(image, ImageFormat.PNG, Encoding(quality=1)) == encode(image, ImageFormat.PNG)


@pytest.mark.parametrize("format", sorted(set(ImageFormat) - set(ENCODABLE)))
def test_formats_only_read_are_not_written(format: ImageFormat) -> None:
    with pytest.raises(InvalidParameter, match="jpeg, png, webp, avif"):
        Encoding().check(format)


@pytest.mark.parametrize(
    ("format", "limit"),
    [(ImageFormat.JPEG, 65_500), (ImageFormat.WEBP, 16_383), (ImageFormat.AVIF, 32_768)],
)
def test_a_side_over_the_formats_limit_is_refused_and_the_limit_named(
    format: ImageFormat, limit: int
) -> None:
    longest = Image(np.zeros((1, limit, 3), np.uint8))
    assert again(encode(longest, format)).width == limit
    for shape in ((1, limit + 1, 3), (limit + 1, 1, 3)):
        with pytest.raises(Unprocessable, match=f"{limit:,} on a side; ask for png"):
            encode(Image(np.zeros(shape, np.uint8)), format)


@pytest.mark.parametrize("format", ENCODABLE)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_one_pixel_is_an_image(format: ImageFormat, channels: int) -> None:
    assert again(encode(smooth(channels, 1, 1), format)).n_pixels == 1


@pytest.mark.parametrize("format", ENCODABLE)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_the_copyright_is_kept_and_the_pixels_are_the_same(
    format: ImageFormat, channels: int
) -> None:
    image = smooth(channels)
    data = encode(image, format, copyright="© Zoë, 2026")
    result = decode(data, max_pixels=LIMIT)
    assert result.copyright == "© Zoë, 2026"
    np.testing.assert_array_equal(
        as_image(result.image).pixels, again(encode(image, format)).pixels
    )


@pytest.mark.parametrize("format", ENCODABLE)
def test_without_a_copyright_there_is_no_metadata(format: ImageFormat) -> None:
    for nothing in (None, ""):
        data = encode(smooth(3), format, copyright=nothing)
        assert b"Exif" not in data
        assert b"eXIf" not in data


def test_an_endless_copyright_is_cut_not_refused() -> None:
    data = encode(smooth(3), ImageFormat.JPEG, copyright="ü" * 100_000)
    assert decode(data, max_pixels=LIMIT).copyright == "ü" * 1000


def test_a_jpegs_jfif_header_stays_in_front() -> None:
    data = encode(smooth(3), ImageFormat.JPEG, copyright="me")
    assert data[:4] == b"\xff\xd8\xff\xe0"
    assert data[20:22] == b"\xff\xe1"


def test_rgb_is_flat_already() -> None:
    image = smooth(3)
    assert flatten(image) is image


def test_grey_is_repeated_to_rgb() -> None:
    flat = flatten(smooth(1)).pixels
    assert flat.shape == (40, 50, 3)
    assert flat.flags.c_contiguous
    for channel in range(3):
        np.testing.assert_array_equal(flat[..., channel], smooth(1).pixels[..., 0])


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 0, 0), (1, 128, 254)])
def test_alpha_is_composited_exactly_for_every_colour_and_alpha(
    background: tuple[int, int, int],
) -> None:
    alpha, colour = np.mgrid[0:256, 0:256].astype(np.uint8)
    image = Image(np.dstack((colour, colour, colour, alpha)))
    a, c = alpha.astype(np.int64)[..., None], colour.astype(np.int64)[..., None]
    exact = (c * a + np.array(background) * (255 - a) + 127) // 255
    flat = flatten(image, background).pixels
    assert flat.flags.c_contiguous
    np.testing.assert_array_equal(flat, exact)


def test_flattening_is_pillows_alpha_composite() -> None:
    image = smooth(4)
    white = PillowImage.new("RGBA", (50, 40), (255, 255, 255, 255))
    composed = PillowImage.alpha_composite(white, PillowImage.fromarray(image.pixels))
    np.testing.assert_array_equal(flatten(image).pixels, np.asarray(composed.convert("RGB")))


@pytest.mark.parametrize("format", ENCODABLE)
def test_pixels_that_are_a_view_of_others_are_encoded_as_seen(format: ImageFormat) -> None:
    whole = smooth(3).pixels
    view = Image(whole[::2, ::-1])
    assert encode(view, format) == encode(Image(np.ascontiguousarray(view.pixels)), format)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_avif_is_the_file_that_pillow_makes_of_its_own_image(channels: int) -> None:
    pixels = np.random.default_rng(channels).integers(0, 256, (24, 40, channels), np.uint8)
    file = BytesIO()
    shown = PillowImage.fromarray(pixels[..., 0] if channels == 1 else pixels)
    chroma = {} if channels == 1 else {"subsampling": "4:2:0"}
    shown.save(file, "AVIF", quality=75, speed=9, max_threads=1, **chroma)
    assert encode(Image(pixels), ImageFormat.AVIF) == file.getvalue()
