import pytest

from models.api.numbers import checked, is_plain, plain_float


def test_plain_numbers_are_numbers() -> None:
    for text in ["0", "10", "-1", "+1.5", ".5", "1.", "1e3", "2.5E-3", "007"]:
        assert is_plain(text)
        assert checked(text) == text
        assert plain_float(f" {text} ") == float(text)


STRANGE = (
    "1_0|1_0.5| 1|1 |\n1|٣|３|1e400|-1e999|nan|NaN|Infinity|-inf|0x10|1e|e1|.|+|--1|1,5||1e1_0"
)


def test_what_only_python_takes_for_a_number_is_none() -> None:
    for text in [*STRANGE.split("|"), "1" * 41]:
        assert not is_plain(text)
        with pytest.raises(ValueError, match="number"):
            checked(text)


def test_truth_is_no_number() -> None:
    with pytest.raises(ValueError, match="number"):
        checked(True)
    assert (checked(1), checked(None)) == (1, None)
