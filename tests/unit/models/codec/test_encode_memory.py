"""What encoding is estimated to take in memory, and what is refused for that by default."""

import pytest

from models.codec import (
    OUTPUT_FORMATS,
    Encoding,
    ImageFormat,
    check_encode_memory,
    encode_memory,
)
from models.domain.errors import Unprocessable
from models.settings import Settings

SQUARE = 1000, 1000
LARGE = 4000, 6000
MOST = Settings().encode_memory


@pytest.mark.parametrize(
    ("format_", "less", "more"),
    [
        (ImageFormat.AVIF, Encoding(), Encoding(chroma="444")),
        (ImageFormat.WEBP, Encoding(), Encoding(quality=100)),
        (ImageFormat.WEBP, Encoding(quality=100), Encoding(lossless=True)),
        (ImageFormat.JPEG, Encoding(), Encoding(quality=100)),
        (ImageFormat.JPEG, Encoding(), Encoding(chroma="444")),
        (ImageFormat.JPEG, Encoding(), Encoding(progressive=True)),
    ],
)
def test_what_encoders_do_more_takes_more(
    format_: ImageFormat, less: Encoding, more: Encoding
) -> None:
    assert encode_memory((*SQUARE, 3), format_, less) < encode_memory((*SQUARE, 3), format_, more)


@pytest.mark.parametrize("format_", OUTPUT_FORMATS)
def test_alpha_takes_more(format_: ImageFormat) -> None:
    opaque, alpha = (encode_memory((*SQUARE, n), format_, Encoding()) for n in (3, 4))
    assert opaque < alpha


def test_a_png_of_one_row_takes_rows_for_each_way_to_filter_it() -> None:
    square = encode_memory((*SQUARE, 4), ImageFormat.PNG, Encoding())
    row = encode_memory((1, 1_000_000, 4), ImageFormat.PNG, Encoding())
    assert row >= square + 20 * 1_000_000


@pytest.mark.parametrize("format_", OUTPUT_FORMATS)
def test_24_megapixels_of_colour_are_encoded_in_every_format_by_default(
    format_: ImageFormat,
) -> None:
    for channels in (1, 3):
        check_encode_memory((*LARGE, channels), format_, Encoding(), MOST)


@pytest.mark.parametrize(
    "format_", [each for each in OUTPUT_FORMATS if each is not ImageFormat.WEBP]
)
def test_24_megapixels_with_alpha_are_encoded_by_default_in_other_formats_than_webp(
    format_: ImageFormat,
) -> None:
    check_encode_memory((*LARGE, 4), format_, Encoding(), MOST)


@pytest.mark.parametrize(
    ("format_", "encoding"),
    [
        (ImageFormat.JPEG, Encoding(quality=100, chroma="444")),
        (ImageFormat.JPEG, Encoding(progressive=True)),
        (ImageFormat.AVIF, Encoding(quality=100)),
        (ImageFormat.AVIF, Encoding(chroma="444")),
    ],
)
def test_24_megapixels_of_colour_are_encoded_with_these_options_too(
    format_: ImageFormat, encoding: Encoding
) -> None:
    check_encode_memory((*LARGE, 3), format_, encoding, MOST)


@pytest.mark.parametrize(
    ("channels", "encoding", "name"),
    [(3, Encoding(lossless=True), "lossless WEBP"), (4, Encoding(), "WEBP with alpha")],
)
def test_24_megapixels_of_other_webps_are_refused_with_what_to_ask_for(
    channels: int, encoding: Encoding, name: str
) -> None:
    with pytest.raises(Unprocessable) as refused:
        check_encode_memory((*LARGE, channels), ImageFormat.WEBP, encoding, MOST)
    text = str(refused.value)
    assert f"6000 × 4000 pixels as {name} takes about" in text
    assert "more than the 286 allowed" in text
    assert "ask for jpeg or png or " in text
    assert text.endswith("fewer pixels")


@pytest.mark.parametrize(
    ("format_", "encoding", "colour", "alpha"),
    [
        (ImageFormat.JPEG, Encoding(), 56, 47),
        (ImageFormat.JPEG, Encoding(quality=100), 38, 34),
        (ImageFormat.JPEG, Encoding(chroma="444"), 39, 34),
        (ImageFormat.JPEG, Encoding(quality=100, chroma="444"), 24, 22),
        (ImageFormat.JPEG, Encoding(progressive=True), 24, 24),
        (ImageFormat.JPEG, Encoding(progressive=True, quality=100), 20, 20),
        (ImageFormat.JPEG, Encoding(progressive=True, chroma="444"), 17, 17),
        (ImageFormat.JPEG, Encoding(progressive=True, quality=100, chroma="444"), 13, 13),
        (ImageFormat.PNG, Encoding(), 37, 33),
        (ImageFormat.WEBP, Encoding(quality=98), 24, 7),
        (ImageFormat.WEBP, Encoding(quality=100), 18, 7),
        (ImageFormat.WEBP, Encoding(lossless=True), 10, 10),
        (ImageFormat.AVIF, Encoding(), 42, 29),
        (ImageFormat.AVIF, Encoding(quality=100), 29, 18),
        (ImageFormat.AVIF, Encoding(chroma="444"), 33, 24),
        (ImageFormat.AVIF, Encoding(quality=100, chroma="444"), 17, 13),
    ],
)
def test_the_megapixels_of_each_format_are_those_of_the_page(
    format_: ImageFormat, encoding: Encoding, colour: int, alpha: int
) -> None:
    for channels, megapixels in ((3, colour), (4, alpha)):
        check_encode_memory((1000, 1000 * megapixels, channels), format_, encoding, MOST)
        with pytest.raises(Unprocessable):
            check_encode_memory((1000, 1000 * (megapixels + 1), channels), format_, encoding, MOST)


def test_an_avif_with_an_odd_side_has_full_chroma_and_takes_more() -> None:
    even, odd = (
        encode_memory((4000, width, 3), ImageFormat.AVIF, Encoding()) for width in (6000, 5999)
    )
    assert odd > even


def test_pixels_that_are_kept_for_other_answers_count() -> None:
    kept = 4 * 24_000_000
    check_encode_memory((*LARGE, 4), ImageFormat.PNG, Encoding(), MOST)
    with pytest.raises(Unprocessable, match="91 of them for other answers to this image"):
        check_encode_memory((*LARGE, 4), ImageFormat.PNG, Encoding(), MOST, beside=kept)


def test_a_refusal_names_no_format_whose_sides_are_too_short() -> None:
    with pytest.raises(Unprocessable, match=r"allowed; ask for fewer pixels$"):
        check_encode_memory((1, 30_000_000, 4), ImageFormat.PNG, Encoding(), MOST)
