"""The short form of chains: its grammar, the types of values, and that it loses nothing."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.domain.errors import InvalidParameter
from workers.filters.registry import FILTERS, describe, parse_chain
from workers.filters.short_form import LONGEST, parse_short, short_form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
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
    ],
)
def test_the_grammar(text: str, expected: list[dict[str, Any]]) -> None:
    assert parse_short(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
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
    ],
)
def test_what_does_not_follow_the_grammar_is_named(text: str, message: str) -> None:
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


@pytest.mark.parametrize("name", FILTERS)
def test_the_example_of_every_filter_can_be_written_in_the_short_form(name: str) -> None:
    example = FILTERS[name].example
    assert parse_short(short_form([example])) == [example]


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    kind = schema.get("anyOf", [schema])[0]
    if "enum" in kind:
        return st.sampled_from(kind["enum"])
    if kind["type"] == "boolean":
        return st.booleans()
    if kind["type"] == "integer":
        return st.integers(kind["minimum"], kind["maximum"])
    if kind["type"] == "number":
        return st.floats(kind["minimum"], kind["maximum"])
    if kind["type"] == "string":
        return st.from_regex(r"\A#?[0-9a-f]{6}\Z")
    return st.lists(st.floats(-8, 8), max_size=3)


@st.composite
def chains(draw: st.DrawFn) -> list[dict[str, Any]]:
    made = []
    for name in draw(st.lists(st.sampled_from([*FILTERS]), min_size=1, max_size=4)):
        parameters: dict[str, Any] = describe(FILTERS[name])["parameters"]
        wanted = {k: _values(s) for k, s in parameters.items()}
        made.append({"name": name, **draw(st.fixed_dictionaries({}, optional=wanted))})
    return made


@given(chains())
def test_chains_come_back_as_they_were_written(chain: list[dict[str, Any]]) -> None:
    assert parse_short(short_form(chain)) == chain


@given(st.text(alphabet=st.sampled_from('abs=:,"[]\\ 12.-{}\n\0é'), max_size=60))
def test_any_text_is_parsed_to_json_or_refused_by_a_value_error(text: str) -> None:
    try:
        found = parse_short(text)
    except ValueError:
        return
    assert all(isinstance(op["name"], str) and op["name"] for op in found)
    assert json.loads(json.dumps(found)) == found
