"""The format of a filtered image, decided by the option, by Accept, or by the source."""

import pytest

from app.http.negotiation import parse
from app.intake.wanted import (
    FixedFormat,
    OutputFormat,
    PreferredFormat,
    SourceFormat,
    output_format,
)
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import NotAcceptable

AVIF, GIF = ImageFormat.AVIF, ImageFormat.GIF
JPEG, PNG, WEBP = ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP

ALL = frozenset(ENCODABLE)

IMAGE_OF_CHROME = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
PAGE_OF_CHROME = "text/html,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"
IMAGE_OF_FIREFOX = "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"
IMAGE_OF_SAFARI = "image/webp,image/avif,image/heic,video/*;q=0.8,image/*;q=0.8,*/*;q=0.5"


@pytest.mark.parametrize(
    ("asked", "accept", "chosen"),
    [
        ("webp", "image/png", FixedFormat(WEBP)),
        ("jpg", None, FixedFormat(JPEG)),
        (None, None, SourceFormat()),
        (None, "*/*", SourceFormat()),
        (None, "image/*", SourceFormat()),
        (None, "image/png", PreferredFormat(PNG)),
        (None, "image/png, image/avif", PreferredFormat(AVIF)),
        (None, "image/png, image/avif;q=0.5", PreferredFormat(PNG)),
        (None, "image/webp, image/*", SourceFormat()),
        (None, "image/webp;q=0.5, image/*", SourceFormat()),
        (None, "image/webp, */*;q=0.1", SourceFormat()),
        (None, "image/webp, */*;q=0", PreferredFormat(WEBP)),
        (None, "image/webp, */*, image/jpeg;q=0", PreferredFormat(WEBP, ALL - {JPEG})),
        (None, "text/html", SourceFormat()),
    ],
)
def test_the_option_wins_then_what_accept_names_then_the_source(
    asked: str | None, accept: str | None, chosen: OutputFormat
) -> None:
    assert output_format(asked, parse(accept)) == chosen


@pytest.mark.parametrize(
    "accept", [IMAGE_OF_CHROME, PAGE_OF_CHROME, IMAGE_OF_FIREFOX, IMAGE_OF_SAFARI]
)
@pytest.mark.parametrize("source", ENCODABLE)
def test_a_browser_gets_the_format_that_it_sent(accept: str, source: ImageFormat) -> None:
    assert output_format(None, parse(accept), strict=True).of(source) is source


@pytest.mark.parametrize(
    ("chosen", "source", "made"),
    [
        (FixedFormat(WEBP), JPEG, WEBP),
        (SourceFormat(), JPEG, JPEG),
        (SourceFormat(), GIF, PNG),
        (PreferredFormat(WEBP), JPEG, WEBP),
        (PreferredFormat(WEBP, frozenset({JPEG})), JPEG, JPEG),
        (PreferredFormat(WEBP, frozenset({PNG})), GIF, PNG),
    ],
)
def test_a_format_follows_from_the_choice_and_the_source(
    chosen: OutputFormat, source: ImageFormat, made: ImageFormat
) -> None:
    assert chosen.of(source) is made


def test_a_strict_choice_refuses_what_accept_rules_out() -> None:
    chosen = output_format(None, parse("image/*, image/png;q=0"), strict=True)
    assert chosen.of(JPEG) is JPEG
    with pytest.raises(NotAcceptable, match="images are encoded as"):
        chosen.of(GIF)


def test_accept_that_names_a_container_says_nothing_about_the_images_in_it() -> None:
    assert output_format(None, parse("application/zip"), strict=True) == SourceFormat()


def test_without_strictness_nothing_is_refused() -> None:
    assert output_format(None, parse("text/html")).of(JPEG) is JPEG
