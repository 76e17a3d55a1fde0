"""Flat options, and the models that declare them."""

import pytest

from app.http.problems import read, read_with_encoding
from models.api.schemas import ClassifyOptions, EncodingOptions, FilterOptions, ProcessOptions
from models.domain.errors import InvalidParameter


def test_what_is_said_of_encoding_is_told_from_the_rest() -> None:
    given = {"name": "gamma", "gamma": "2", "format": "webp", "quality": "70"}
    found, encoding = read_with_encoding(FilterOptions, given)
    assert (found.name, found.model_extra) == ("gamma", {"gamma": "2"})
    assert encoding == EncodingOptions(format="webp", quality=70)


def test_all_that_is_wrong_is_said_and_what_is_unknown_last() -> None:
    given = {"zip": 1, "quality": 0, "top_k": 0, "format": "bmp"}
    with pytest.raises(InvalidParameter) as refused:
        read_with_encoding(ProcessOptions, given)
    assert [each.path for each in refused.value.errors] == ["top_k", "format", "quality", "zip"]
    assert refused.value.detail.startswith("top_k: ")


def test_an_option_of_encoding_is_unknown_where_nothing_is_encoded() -> None:
    said = "quality: unknown option; there are top_k, function_to_apply"
    with pytest.raises(InvalidParameter, match=said):
        read(ClassifyOptions, {"quality": 70})


def test_no_option_is_declared_twice_beside_those_of_encoding() -> None:
    for each in (FilterOptions, ProcessOptions):
        assert not each.model_fields.keys() & EncodingOptions.model_fields.keys()


STRANGE = ["1_0", " 1", "1 ", "٣", "1e400", "NaN", "Infinity", "0x1", True, ""]


@pytest.mark.parametrize("given", STRANGE)
@pytest.mark.parametrize("name", ["top_k", "quality", "png_level", "avif_speed"])
def test_whole_numbers_are_written_in_plain_digits(name: str, given: object) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}: "):
        read_with_encoding(ProcessOptions, {name: given})


def test_plain_digits_may_be_text_or_a_number() -> None:
    for given in ("5", 5, "5.0"):
        assert read(ClassifyOptions, {"top_k": given}).top_k == 5
