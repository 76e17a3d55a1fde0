"""What a request says of filters, as JSON."""

import pytest

from app.chains import encoded_there, parsed_json
from models.codec import Encoding
from models.image import Subsampling
from workers.filters import parse_one
from workers.operations import DeviceJpeg, FilterChain

INVERT = FilterChain((parse_one("invert", {}),))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name": "\\ud800"}', '{"\\udfff": 1}', "{"])
def test_json_that_cannot_be_answered_as_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested|surrogates|Expecting"):
        parsed_json(text)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parsed_json('["\\ud83d\\ude00"]') == ["\N{GRINNING FACE}"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Encoding(encoder="gpu"), DeviceJpeg(90, Subsampling.S420)),
        (Encoding(encoder="gpu", quality=71, chroma="444"), DeviceJpeg(71, Subsampling.S444)),
    ],
)
def test_a_gpu_is_asked_for_the_quality_and_chroma_that_a_cpu_would_take(
    asked: Encoding, expected: DeviceJpeg
) -> None:
    assert encoded_there(INVERT, asked, "jpeg").jpeg == expected


def test_without_a_gpu_asked_for_a_chain_stays_as_it_is() -> None:
    assert encoded_there(INVERT, Encoding(), "jpeg") is INVERT
