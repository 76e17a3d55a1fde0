"""The format of a filtered image, decided by the option, by Accept, or by the source."""

from typing import Any

import pytest

from app.http.negotiation import parse
from app.intake.wanted import AS_SOURCE, OutputFormat, output_format, version_of
from models.api.schemas import EncodingOptions
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import NotAcceptable
from workers.filters.registry import parse_one
from workers.operations import FilterChain

AVIF, GIF = ImageFormat.AVIF, ImageFormat.GIF
JPEG, PNG, WEBP = ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP

ALL = frozenset(ENCODABLE)

IMAGE_OF_CHROME = "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
PAGE_OF_CHROME = "text/html,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"
IMAGE_OF_FIREFOX = "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"
IMAGE_OF_SAFARI = "image/webp,image/avif,image/heic,video/*;q=0.8,image/*;q=0.8,*/*;q=0.5"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, AS_SOURCE),
        ("*/*", AS_SOURCE),
        ("image/*", AS_SOURCE),
        ("image/png", OutputFormat(PNG)),
        ("image/png, image/avif", OutputFormat(AVIF)),
        ("image/png, image/avif;q=0.5", OutputFormat(PNG)),
        ("image/webp, image/*", AS_SOURCE),
        ("image/webp;q=0.5, image/*", AS_SOURCE),
        ("image/webp, */*;q=0.1", AS_SOURCE),
        ("image/webp, */*;q=0", OutputFormat(WEBP)),
        ("image/webp, */*, image/jpeg;q=0", OutputFormat(WEBP, ALL - {JPEG})),
        ("text/html", AS_SOURCE),
    ],
)
def test_what_accept_names_wins_then_the_source(accept: str | None, chosen: OutputFormat) -> None:
    assert output_format(parse(accept)) == chosen


@pytest.mark.parametrize(("name", "format_"), [("webp", WEBP), ("jpg", JPEG)])
def test_the_option_wins_over_accept(name: Any, format_: ImageFormat) -> None:
    chain = FilterChain((parse_one("invert", {}),))
    found = version_of(chain, EncodingOptions(format=name), OutputFormat(PNG))
    assert found.output.format == OutputFormat(format_)


@pytest.mark.parametrize(
    "accept", [IMAGE_OF_CHROME, PAGE_OF_CHROME, IMAGE_OF_FIREFOX, IMAGE_OF_SAFARI]
)
@pytest.mark.parametrize("source", ENCODABLE)
def test_a_browser_gets_the_format_that_it_sent(accept: str, source: ImageFormat) -> None:
    assert output_format(parse(accept), strict=True).of(source) is source


@pytest.mark.parametrize(
    ("chosen", "source", "made"),
    [
        (AS_SOURCE, JPEG, JPEG),
        (AS_SOURCE, GIF, PNG),
        (OutputFormat(WEBP), JPEG, WEBP),
        (OutputFormat(WEBP, frozenset({JPEG})), JPEG, JPEG),
        (OutputFormat(WEBP, frozenset({PNG})), GIF, PNG),
    ],
)
def test_a_format_follows_from_the_choice_and_the_source(
    chosen: OutputFormat, source: ImageFormat, made: ImageFormat
) -> None:
    assert chosen.of(source) is made


def test_a_strict_choice_refuses_what_accept_rules_out() -> None:
    chosen = output_format(parse("image/*, image/png;q=0"), strict=True)
    assert chosen.of(JPEG) is JPEG
    with pytest.raises(NotAcceptable, match="images are encoded as"):
        chosen.of(GIF)


def test_accept_that_names_a_container_says_nothing_about_the_images_in_it() -> None:
    assert output_format(parse("application/zip"), strict=True) == AS_SOURCE


def test_without_strictness_nothing_is_refused() -> None:
    assert output_format(parse("text/html")).of(JPEG) is JPEG
