"""The short form of chains: its grammar, and the types of values."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.domain.errors import InvalidParameter
from workers.filters.registry import FILTERS, parse_chain
from workers.filters.short_form import LONGEST, parse_short


def test_the_grammar() -> None:
    for text, expected in [
        ("sepia", [{"name": "sepia"}]),
        (" sepia , grayscale ", [{"name": "sepia"}, {"name": "grayscale"}]),
        ("gaussian_blur:sigma=2", [{"name": "gaussian_blur", "sigma": 2}]),
        (
            "resize:width=100,height=50,sepia",
            [{"name": "resize", "width": 100, "height": 50}, {"name": "sepia"}],
        ),
        (
            "sepia,resize:width=100,fit=cover",
            [{"name": "sepia"}, {"name": "resize", "width": 100, "fit": "cover"}],
        ),
        (
            "convolve:kernel=[[0, 1], [1, 0]],divisor=2,invert",
            [{"name": "convolve", "kernel": [[0, 1], [1, 0]], "divisor": 2}, {"name": "invert"}],
        ),
        (
            'colorize:black="#f00",white=fff',
            [{"name": "colorize", "black": "#f00", "white": "fff"}],
        ),
        ("autocontrast:preserve_tone=true", [{"name": "autocontrast", "preserve_tone": True}]),
        ("gaussian_blur:sigma_y=null", [{"name": "gaussian_blur", "sigma_y": None}]),
        ("hue:degrees=-90.5", [{"name": "hue", "degrees": -90.5}]),
    ]:
        assert parse_short(text) == expected


def test_what_does_not_follow_the_grammar_is_named() -> None:
    for text, message in [
        ("", "name of a filter is missing"),
        ("sepia,,invert", "name of a filter is missing"),
        (":sigma=2", "name of a filter is missing"),
        ("sigma=2", "a filter is needed before the parameter 'sigma=2'"),
        ("gaussian_blur:", "gaussian_blur: '' is no parameter; write parameter=value"),
        ("gaussian_blur:2", "gaussian_blur: '2' is no parameter"),
        ("gaussian_blur:name=sepia", "'name=sepia' is no parameter"),
        ("gaussian_blur:sigma=2,sigma=3", "gaussian_blur: sigma is given twice"),
        ("convolve:kernel=[[1", "a bracket is not closed"),
        ('colorize:black="f00', "a quote is not closed"),
        ("x" * (LONGEST + 1), f"at most {LONGEST} characters"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_short(text)


@pytest.mark.parametrize(
    "text", ["gaussian_blur:sigma=two", "median:size=1_1", "hue:degrees=NaN", "box_blur:radius=1.5"]
)
def test_values_of_the_wrong_type_are_left_to_the_parser_of_chains(text: str) -> None:
    with pytest.raises(InvalidParameter, match="is needed, not"):
        parse_chain(parse_short(text))


def test_deep_nesting_stays_text() -> None:
    text = "convolve:kernel=" + "[" * 10_000 + "]" * 10_000
    (op,) = parse_short(text)
    assert isinstance(op["kernel"], str)


def test_the_example_of_every_filter_can_be_written_in_the_short_form() -> None:
    for name in FILTERS:
        example = FILTERS[name].example
        values = [f"{key}={json.dumps(value)}" for key, value in example.items() if key != "name"]
        assert parse_short(",".join([name, *values])) == [example]


@given(st.text(alphabet=st.sampled_from('abs=:,"[]\\ 12.-{}\n\0é'), max_size=60))
def test_any_text_is_parsed_to_json_or_refused_by_a_value_error(text: str) -> None:
    try:
        found = parse_short(text)
    except ValueError:
        return
    assert all(isinstance(op["name"], str) and op["name"] for op in found)
    assert json.loads(json.dumps(found)) == found
