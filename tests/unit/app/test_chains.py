"""What a request says of filters, as JSON."""

import pytest

from app.chains import parsed_json


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name": "\\ud800"}', '{"\\udfff": 1}', "{"])
def test_json_that_cannot_be_answered_as_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested|surrogates|Expecting"):
        parsed_json(text)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parsed_json('["\\ud83d\\ude00"]') == ["\N{GRINNING FACE}"]
