"""Encoding: options, bytes, pixels, costs and memory."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from models.codec import (
    ENCODABLE,
    Chroma,
    Encoding,
    ImageFormat,
    check_encode_cost,
    check_encode_memory,
    decode,
    encode,
    encode_within,
    flatten,
    open_file,
)
from models.codec.encoder import STRIPE
from models.domain.errors import InvalidParameter, Unprocessable
from models.domain.image import Image, Pixels
from models.settings import Settings
from tests.pictures import as_image, encoded

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


def test_lossy_formats_come_close_in_the_channels_that_they_have() -> None:
    for channels, format in itertools.product([1, 3, 4], LOSSY):
        image = smooth(channels)
        data = encode(image, format)
        assert open_file(data, max_pixels=LIMIT).info.format is format
        back = again(data)
        expected = 3 if (channels, format) == (1, ImageFormat.WEBP) else channels
        assert back.channels == (3 if format is ImageFormat.JPEG and channels == 4 else expected)
        assert difference(flatten(back).pixels, flatten(image).pixels) < 4
        if back.channels == 4:
            assert difference(back.pixels[..., 3], image.pixels[..., 3]) < 2
        assert again(encode(smooth(channels, 1, 1), format)).n_pixels == 1


def test_a_jpeg_of_an_image_with_alpha_is_flattened_on_white() -> None:
    clear = Image(np.zeros((16, 16, 4), np.uint8))
    assert again(encode(clear, ImageFormat.JPEG)).pixels.min() == 255


def test_a_lower_quality_gives_a_smaller_file() -> None:
    for format in LOSSY:
        noise = Image(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
        sizes = [len(encode(noise, format, Encoding(quality=q))) for q in (5, None, 100)]
        assert sizes == sorted({*sizes})


@pytest.mark.parametrize("format", LOSSY)
@pytest.mark.parametrize(("least", "most", "quality"), [(1, 90, 90), (1, 90, 41), (7, 60, 7)])
def test_the_highest_quality_that_fits_is_found_and_else_the_smallest_size_is_told(
    format: ImageFormat, least: int, most: int, quality: int
) -> None:
    image = Image(np.random.default_rng(1).integers(0, 256, (64, 96, 3), np.uint8))
    size = len(encode(image, format, Encoding(quality=quality), copyright="us"))
    asked = Encoding(quality=most, min_quality=least, max_bytes=size)
    asked.check(format)
    data, found = encode_within(image, format, asked, copyright="us")
    assert (len(data), data) == (size, encode(image, format, Encoding(found), copyright="us"))
    assert found is not None
    assert found >= quality  # some qualities share a file
    above = encode(image, format, Encoding(found + 1), copyright="us")
    assert len(above) > size or found == most
    lowest = len(encode(image, format, Encoding(least)))
    with pytest.raises(Unprocessable, match=f"at quality {least} it has {lowest:,};"):
        encode_within(image, format, replace(asked, max_bytes=10))


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        (Encoding(min_quality=5), "min_quality: an option beside max_bytes"),
        (Encoding(max_bytes=5, lossless=True), "max_bytes: a lossless file has no quality"),
        (Encoding(max_bytes=5, min_quality=81), "min_quality: at most the quality .* is 80"),
    ],
)
def test_options_of_sizes_that_contradict_each_other_are_refused(
    asked: Encoding, path: str
) -> None:
    with pytest.raises(InvalidParameter, match=path):
        asked.check(ImageFormat.WEBP)


def test_formats_only_read_are_not_written() -> None:
    for format in sorted(set(ImageFormat) - set(ENCODABLE)):
        with pytest.raises(InvalidParameter, match="jpeg, png, webp, avif"):
            Encoding().check(format)


def test_a_side_over_the_formats_limit_is_refused_and_the_limit_named() -> None:
    for format, limit in [
        (ImageFormat.JPEG, 65_500),
        (ImageFormat.WEBP, 16_383),
        (ImageFormat.AVIF, 32_768),
    ]:
        longest = Image(np.zeros((1, limit, 3), np.uint8))
        assert again(encode(longest, format)).width == limit
        for shape in ((1, limit + 1, 3), (limit + 1, 1, 3)):
            with pytest.raises(Unprocessable, match=f"{limit:,} on a side; ask for png"):
                encode(Image(np.zeros(shape, np.uint8)), format)


def test_the_copyright_is_kept_and_the_pixels_are_the_same() -> None:
    for channels, format in itertools.product([1, 3, 4], ENCODABLE):
        image = smooth(channels)
        data = encode(image, format, copyright="© Zoë, 2026")
        result = decode(data, max_pixels=LIMIT)
        if format is ImageFormat.GIF:  # a comment, and alpha of one bit
            assert "© Zoë, 2026".encode() in data
        else:
            assert result.copyright == "© Zoë, 2026"
        np.testing.assert_array_equal(
            as_image(result.image).pixels, again(encode(image, format)).pixels
        )


def test_without_a_copyright_there_is_no_metadata() -> None:
    for format in ENCODABLE:
        for nothing in (None, ""):
            data = encode(smooth(3), format, copyright=nothing)
            assert b"Exif" not in data
            assert b"eXIf" not in data


def test_an_endless_copyright_is_cut_not_refused() -> None:
    data = encode(smooth(3), ImageFormat.JPEG, copyright="ü" * 100_000)
    assert decode(data, max_pixels=LIMIT).copyright == "ü" * 1000


def test_alpha_is_composited_exactly_for_every_colour_and_alpha() -> None:
    for background in [(255, 255, 255), (0, 0, 0), (1, 128, 254)]:
        alpha, colour = np.mgrid[0:256, 0:256].astype(np.uint8)
        image = Image(np.dstack((colour, colour, colour, alpha)))
        a, c = alpha.astype(np.int64)[..., None], colour.astype(np.int64)[..., None]
        exact = (c * a + np.array(background) * (255 - a) + 127) // 255
        flat = flatten(image, background).pixels
        assert flat.flags.c_contiguous
        np.testing.assert_array_equal(flat, exact)


def test_pixels_that_are_a_view_of_others_are_encoded_as_seen() -> None:
    for format in ENCODABLE:
        whole = smooth(3).pixels
        view = Image(whole[::2, ::-1])
        assert encode(view, format) == encode(Image(np.ascontiguousarray(view.pixels)), format)


def test_an_avif_is_the_file_that_pillow_makes_of_its_own_image() -> None:
    for channels in [1, 3, 4]:
        pixels = np.random.default_rng(channels).integers(0, 256, (24, 40, channels), np.uint8)
        shown = PillowImage.fromarray(pixels[..., 0] if channels == 1 else pixels)
        chroma = {} if channels == 1 else {"subsampling": "4:2:0"}
        theirs = encoded(shown, "AVIF", quality=75, speed=9, max_threads=1, **chroma)
        assert encode(Image(pixels), ImageFormat.AVIF) == theirs


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


def frame(jpeg: bytes) -> tuple[int, list[int]]:
    """Return the SOF marker, and the sampling factors of each component."""
    at = 2
    while True:
        marker, length = jpeg[at + 1], int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            n = jpeg[at + 9]
            return marker, [jpeg[at + 11 + 3 * component] for component in range(n)]
        at += 2 + length


def test_a_jpeg_has_the_frame_and_the_sampling_factors_asked_for() -> None:
    for chroma, progressive in itertools.product(FACTORS, [False, True]):
        asked = Encoding(chroma=chroma, progressive=progressive)
        marker, factors = frame(encode(picture(3), ImageFormat.JPEG, asked))
        assert marker == (PROGRESSIVE if progressive else BASELINE)
        assert factors == [FACTORS[chroma], 0x11, 0x11]


def test_a_grey_jpeg_has_one_plane_whatever_its_chroma_is_to_be() -> None:
    for chroma, progressive in itertools.product([None, *FACTORS], [False, True]):
        asked = Encoding(chroma=chroma, progressive=progressive)
        assert frame(encode(picture(1), ImageFormat.JPEG, asked))[1] == [0x11]


def test_a_progressive_jpeg_has_the_pixels_of_the_baseline_one() -> None:
    for chroma, channels, quality in itertools.product(FACTORS, [1, 3, 4], [96, 100]):
        baseline, progressive = (
            encode(picture(channels), ImageFormat.JPEG, Encoding(quality, late, chroma))
            for late in (False, True)
        )
        np.testing.assert_array_equal(again(baseline).pixels, again(progressive).pixels)


def test_a_progressive_jpeg_of_noise_is_written_whole() -> None:
    for quality in [94, 100]:
        noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
        asked = Encoding(quality, progressive=True, chroma="444")
        data = encode(Image(noise), ImageFormat.JPEG, asked)
        assert frame(data)[0] == PROGRESSIVE
        assert len(data) > 300 * 400
        theirs = encoded(PillowImage.fromarray(noise), quality=quality, subsampling="4:4:4")
        np.testing.assert_array_equal(again(data).pixels, again(theirs).pixels)


def test_a_lossless_webp_gives_every_pixel_back_clear_ones_too() -> None:
    for channels in [1, 3, 4]:
        image = picture(channels)
        data = encode(image, ImageFormat.WEBP, Encoding(lossless=True))
        assert b"VP8L" in data[:64]
        expected = np.repeat(image.pixels, 3, axis=2) if channels == 1 else image.pixels
        np.testing.assert_array_equal(again(data).pixels, expected)


def test_a_png_of_any_level_gives_every_pixel_back() -> None:
    for channels, level in itertools.product([1, 3, 4], [None, *range(10)]):
        image = picture(channels)
        data = encode(image, ImageFormat.PNG, Encoding(png_level=level))
        np.testing.assert_array_equal(again(data).pixels, image.pixels)


def test_an_avif_has_the_chroma_asked_for() -> None:
    for chroma in FACTORS:
        data = encode(picture(3), ImageFormat.AVIF, Encoding(chroma=chroma))
        at = data.index(b"av1C") + 4
        bits = data[at + 2]  # AV1CodecConfigurationRecord: … monochrome, subsampling x, y, position
        expected = {"420": (1, 1), "422": (1, 0), "444": (0, 0)}
        assert (bits >> 3 & 1, bits >> 2 & 1) == expected[chroma]


ONLY: dict[str, tuple[Any, list[ImageFormat]]] = {
    "progressive": (True, [ImageFormat.JPEG]),
    "chroma": ("444", [ImageFormat.JPEG, ImageFormat.AVIF]),
    "lossless": (True, [ImageFormat.WEBP]),
    "png_level": (0, [ImageFormat.PNG]),
    "avif_speed": (0, [ImageFormat.AVIF]),
    "max_bytes": (9999, [*LOSSY]),
    "metadata": ("keep", [each for each in ENCODABLE if each is not ImageFormat.GIF]),
}


@pytest.mark.parametrize("format", ENCODABLE)
@pytest.mark.parametrize("name", ONLY)
def test_an_option_of_another_format_is_refused_with_its_path_and_value(
    name: str, format: ImageFormat
) -> None:
    given, having = ONLY[name]
    asked = Encoding(**{name: given})
    if format in having:
        asked.check(format)
        assert encode(TINY, format, asked)
        return
    with pytest.raises(InvalidParameter, match=f"^{name}: an option of .*{having[0].name}") as no:
        asked.check(format)
    assert [(e.path, e.given) for e in no.value.errors] == [(name, given)]
    assert f"to be {format.name}" in no.value.detail


def test_all_that_is_wrong_is_said_at_once() -> None:
    everything: dict[str, Any] = {name: given for name, (given, _) in ONLY.items()}
    with pytest.raises(InvalidParameter) as no:
        Encoding(**everything).check(ImageFormat.PNG)
    paths = [e.path for e in no.value.errors]
    assert paths == ["progressive", "chroma", "lossless", "avif_speed", "max_bytes"]


def test_what_would_take_too_long_is_refused_with_what_to_do() -> None:
    with pytest.raises(Unprocessable) as error:
        check_encode_cost(50_000_000, ImageFormat.AVIF, Encoding(avif_speed=0), 60.0)
    assert "50,000,000 pixels" in error.value.detail
    assert "2,650 s" in error.value.detail
    assert "a higher avif_speed" in error.value.detail


def test_the_largest_image_is_encoded_where_nothing_is_asked() -> None:
    for format_ in (ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.AVIF):
        assert check_encode_cost(50_000_000, format_, Encoding(), 60.0) < 5


LARGE = 4000, 6000
MOST = Settings().encode_memory


def test_24_megapixels_of_other_webps_are_refused_with_what_to_ask_for() -> None:
    for channels, encoding, name in [
        (3, Encoding(lossless=True), "lossless WEBP"),
        (4, Encoding(), "WEBP with alpha"),
    ]:
        with pytest.raises(Unprocessable) as refused:
            check_encode_memory((*LARGE, channels), ImageFormat.WEBP, encoding, MOST)
        text = str(refused.value)
        assert f"6000 × 4000 pixels as {name} takes about" in text
        assert "more than the 286 allowed" in text
        assert "ask for jpeg or png or " in text
        assert text.endswith("fewer pixels")


def test_the_megapixels_of_each_format_are_those_of_the_page() -> None:
    for format_, encoding, colour, alpha in [
        (ImageFormat.JPEG, Encoding(), 56, 47),
        (ImageFormat.JPEG, Encoding(quality=100), 38, 34),
        (ImageFormat.JPEG, Encoding(chroma="444"), 39, 34),
        (ImageFormat.JPEG, Encoding(quality=100, chroma="444"), 24, 22),
        (ImageFormat.JPEG, Encoding(progressive=True), 24, 24),
        (ImageFormat.JPEG, Encoding(progressive=True, quality=100), 20, 20),
        (ImageFormat.JPEG, Encoding(progressive=True, chroma="444"), 17, 17),
        (ImageFormat.JPEG, Encoding(progressive=True, quality=100, chroma="444"), 13, 13),
        (ImageFormat.PNG, Encoding(), 37, 33),
        (ImageFormat.WEBP, Encoding(), 24, 7),
        (ImageFormat.WEBP, Encoding(quality=98), 24, 7),
        (ImageFormat.WEBP, Encoding(quality=100), 18, 7),
        (ImageFormat.WEBP, Encoding(lossless=True), 10, 10),
        (ImageFormat.AVIF, Encoding(), 42, 29),
        (ImageFormat.AVIF, Encoding(quality=100), 29, 18),
        (ImageFormat.AVIF, Encoding(chroma="444"), 33, 24),
        (ImageFormat.AVIF, Encoding(quality=100, chroma="444"), 17, 13),
    ]:
        for channels, megapixels in ((3, colour), (4, alpha)):
            most, above = ((1000, 1000 * (megapixels + n), channels) for n in (0, 1))
            check_encode_memory(most, format_, encoding, MOST)
            with pytest.raises(Unprocessable):
                check_encode_memory(above, format_, encoding, MOST)


def test_pixels_that_are_kept_for_other_answers_count() -> None:
    kept = 4 * 24_000_000
    check_encode_memory((*LARGE, 4), ImageFormat.PNG, Encoding(), MOST)
    with pytest.raises(Unprocessable, match="91 of them for other answers to this image"):
        check_encode_memory((*LARGE, 4), ImageFormat.PNG, Encoding(), MOST, beside=kept)


def test_a_refusal_names_no_format_whose_sides_are_too_short() -> None:
    with pytest.raises(Unprocessable, match=r"allowed; ask for fewer pixels$"):
        check_encode_memory((1, 30_000_000, 4), ImageFormat.PNG, Encoding(), MOST)


BACKGROUND = (12, 200, 77)


def noise(height: int, width: int) -> Image:
    rng = np.random.default_rng(height)
    return Image(rng.integers(0, 256, (height, width, 4), np.uint8))


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (23, 37), (7, 11)])
@pytest.mark.parametrize("stripe", [1, 11, 64])
def test_stripes_give_the_bytes_of_the_whole(
    size: tuple[int, int], stripe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = noise(*size)
    whole = flatten(image, BACKGROUND).pixels
    monkeypatch.setattr("models.codec.encoder.STRIPE", stripe)
    assert np.array_equal(flatten(image, BACKGROUND).pixels, whole)


def test_a_jpeg_gives_back_the_pixels_that_are_flattened() -> None:
    taken: list[int] = []
    image = noise(1200, 1200)
    encode(image, ImageFormat.JPEG, Encoding(), taken=lambda pixels: taken.append(len(pixels)))
    assert taken == [STRIPE, image.n_pixels - STRIPE]
