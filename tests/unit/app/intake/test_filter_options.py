"""What a request says of filters, as JSON, and of the format of filtered images."""

from typing import Any

import numpy as np
import pytest

from app.http.negotiation import EVERYTHING, parse
from app.http.problems import MOST_ERRORS
from app.intake.json_items import parsed_json
from app.intake.wanted import (
    AS_SOURCE,
    OutputFormat,
    chain_of,
    output_format,
    version_of,
    versions_of,
)
from models.api.schemas import EncodingOptions, FilterOptions, ProcessOptions
from models.codec import ENCODABLE, ImageFormat, ImageInfo
from models.domain.errors import InvalidParameter, NotAcceptable
from models.domain.image import Subsampling
from workers.filters import registry
from workers.filters.marks import picture_of
from workers.filters.registry import MOST_WRONG, parse_one
from workers.operations import DeviceJpeg, FilterChain

INVERT = FilterChain((parse_one("invert", {}),))

PHOTO = ImageInfo(ImageFormat.JPEG, 8, 8, 1, 1, "RGB", fast_jpeg=True)


@pytest.mark.parametrize(
    "text",
    ["[" * 20_000, "[" + "[]," * 20_000 + "[]]", '{"name": "\\ud800"}', '{"\\udfff": 1}', "{"],
)
def test_json_that_cannot_be_answered_as_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested|truncated|surrogate|more than 40000"):
        parsed_json(text)


def test_text_that_is_not_json_is_told_where_it_is_wrong() -> None:
    with pytest.raises(InvalidParameter) as told:
        chain_of(FilterOptions(ops="[{name: grayscale}]"))
    assert told.value.detail.startswith("ops: the text is not valid JSON: object keys must be")
    assert "byte 2" in told.value.detail


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, DeviceJpeg(90, Subsampling.S420)),
        ({"quality": 71, "chroma": "444"}, DeviceJpeg(71, Subsampling.S444)),
        ({"progressive": True}, None),
        ({"max_bytes": 5000}, None),
        ({"format": "png"}, None),
    ],
)
def test_a_gpu_is_asked_for_the_quality_and_chroma_that_a_cpu_would_take(
    asked: dict[str, Any], expected: DeviceJpeg | None
) -> None:
    version = version_of(INVERT, EncodingOptions(**asked), AS_SOURCE)
    assert version.on_gpu(version.format_for(PHOTO)).jpeg == expected
    assert version.operation.jpeg is None


@pytest.mark.parametrize(
    "text", ["1_0", " 2", "2 ", "٣", "1e400", "NaN", "Infinity", "-Infinity", "0x2"]
)
def test_a_filter_s_numbers_are_written_in_plain_digits(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"^sigma: "):
        parse_one("gaussian_blur", {"sigma": text})
    assert parse_one("gaussian_blur", {"sigma": "1e1"}) == parse_one("gaussian_blur", {"sigma": 10})


@pytest.mark.parametrize(
    ("name", "parameter", "text"),
    [
        ("convolve", "kernel", "1_0,0,0"),
        ("convolve", "kernel", "nan"),
        ("convolve", "kernel", ",".join(["1"] * 100_000)),
        ("convolve", "kernel", ";".join(["1"] * 100_000)),
        ("color_matrix", "matrix", "٣,0,0,0,0,1,0,0,0,0,1,0"),
        ("color_matrix", "matrix", ",".join(["1"] * 100_000)),
    ],
)
def test_lists_of_numbers_as_text_are_plain_and_bounded(
    name: str, parameter: str, text: str
) -> None:
    with pytest.raises(InvalidParameter, match=f"^{parameter}: "):
        parse_one(name, {parameter: text})
    parse_one("convolve", {"kernel": "0, 1, 0;1, -4, 1;0, 1, 0"})


@pytest.mark.parametrize("op", [{"name": "gausian_blurr"}, {"name": "gaussian_blur", "sigmaa": 1}])
def test_of_thousands_of_wrong_filters_few_are_checked(
    monkeypatch: pytest.MonkeyPatch, op: dict[str, Any]
) -> None:
    searches: list[str] = []

    def hint(given: str, _known: object) -> str:
        searches.append(given)
        return ""

    monkeypatch.setattr(registry, "hint", hint)
    with pytest.raises(InvalidParameter) as refused:
        versions_of(ProcessOptions(versions=[{"ops": [op] * 32}] * 64), EVERYTHING)
    assert len(searches) == len(refused.value.errors) == MOST_WRONG
    assert refused.value.errors[-1].path.startswith(f"versions[0].ops[{MOST_WRONG - 1}].")
    searches.clear()
    with pytest.raises(InvalidParameter) as refused:
        versions_of(ProcessOptions(versions=[{"ops": [op]}] * 64), EVERYTHING)
    assert len(searches) == len(refused.value.errors) == MOST_ERRORS
    assert refused.value.errors[-1].path.startswith(f"versions[{MOST_ERRORS - 1}].ops[0].")


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
    found = version_of(INVERT, EncodingOptions(format=name), OutputFormat(PNG))
    assert found.format == OutputFormat(format_)


@pytest.mark.parametrize(
    "accept", [IMAGE_OF_CHROME, PAGE_OF_CHROME, IMAGE_OF_FIREFOX, IMAGE_OF_SAFARI]
)
def test_a_browser_gets_the_format_that_it_sent(accept: str) -> None:
    chosen = output_format(parse(accept), strict=True)
    assert [chosen.of(source) for source in ENCODABLE] == [PNG, *ENCODABLE[1:]]  # without GIF


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
    container = output_format(parse("application/zip"), strict=True)
    assert container == AS_SOURCE, "it says nothing about the images in it"


def test_filters_that_measure_take_no_frames() -> None:
    for op in ({"name": "trim"}, {"name": "resize", "fit": "cover", "gravity": "smart"}):
        chain = chain_of(FilterOptions(ops=[op]))
        with pytest.raises(InvalidParameter, match="leave out frames=all"):
            version_of(chain, EncodingOptions(frames="all"), AS_SOURCE)


def test_a_version_of_its_own_format_takes_what_the_format_has_from_the_request() -> None:
    versions = [{"name": "invert", "format": name} for name in ("gif", "png")]
    given = ProcessOptions(versions=versions, metadata="keep", quality=50, lossless=True)
    gif, png = (each.encoding for each in versions_of(given, EVERYTHING))
    assert (gif.metadata, png.metadata, png.quality, png.lossless) == ("strip", "keep", 50, False)


def test_the_pictures_of_all_overlays_of_a_chain_are_small_together() -> None:
    picture = picture_of(np.zeros((512, 256, 3), np.uint8))
    for n in (1, 2):
        chain_of(FilterOptions(ops=[{"name": "overlay"}] * n, overlay=picture))
    with pytest.raises(InvalidParameter, match="393,216 pixels; at most 262,144 are allowed"):
        chain_of(FilterOptions(ops=[{"name": "overlay"}] * 3, overlay=picture))
