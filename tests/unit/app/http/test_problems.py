"""Problem details are bounded for any request; wrong options are named at once."""

import json
import time
from typing import Any

import msgspec
import pytest

from app.http.problems import MOST_ERRORS, invalid, problem, read, shortened
from models.api.schemas import ClassifyOptions, FilterOptions, ProcessOptions
from models.domain.errors import FieldError, InvalidParameter

LONG = "\x00" * 1_000_000


def told(error: InvalidParameter, path: str = "/filter") -> Any:
    text = msgspec.json.encode(problem(error, {"path": path}))
    assert len(text) < 100_000
    return json.loads(text)


def given(value: object) -> object:
    return told(InvalidParameter("x", [FieldError("a", "m", value)]))["errors"][0]["given"]


def test_a_problem_of_many_long_errors_is_short() -> None:
    errors = [FieldError(LONG, LONG, LONG)] * 100_000
    body = told(InvalidParameter(LONG, errors), "/" + "a" * 60_000)
    assert len(body["instance"]) == 200
    short = [FieldError("a", "b", "c")] * 100_000
    assert len(told(InvalidParameter("", short))["errors"]) == MOST_ERRORS


def test_what_was_given_is_shown_as_it_is_while_it_is_short() -> None:
    for value in ([1, "a", {"b": [None, 2.5]}], {"a": True}, b"x", 1.5):
        assert given(value) == repr(value)
    for plain in ("text", 7, -(10**39), True):
        assert given(plain) == plain


@pytest.mark.parametrize(
    "value",
    [[[]] * 5_000_000, [LONG] * 1000, {LONG: LONG}, [10**4299], 10**4299, LONG],
    ids=["lists", "strings", "object", "number in a list", "number", "string"],
)
def test_what_was_given_costs_no_more_than_is_shown(value: object) -> None:
    began = time.thread_time()
    shown = given(value)
    assert isinstance(shown, str)
    assert len(shown) <= 200
    assert time.thread_time() - began < 0.1


def test_of_many_things_that_pydantic_found_the_first_are_told_and_unknown_ones_last() -> None:
    unknown: Any = {"type": "extra_forbidden", "loc": ("x",), "msg": "unknown", "input": 1}
    wrong: Any = {"type": "int_type", "loc": ("top_k",), "msg": "wrong", "input": "a"}
    error = invalid([unknown] * 50 + [wrong])
    assert error.errors[0].path == "top_k"
    assert len(error.errors) == MOST_ERRORS


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("a text that fits", 16, "a text that fits"),
        ("a text that does not fit", 16, "a text that…"),
        ("a reason: and more", 13, "a reason…"),
        ("x" * 30, 10, "x" * 9 + "…"),
        ("a " + "x" * 30, 10, "a " + "x" * 7 + "…"),
    ],
)
def test_a_message_that_is_too_long_ends_after_a_word(text: str, most: int, shown: str) -> None:
    assert shortened(text, most) == shown


def test_parameters_of_a_filter_are_told_from_options() -> None:
    found = read(FilterOptions, {"name": "gamma", "gamma": "2", "quality": "70"})
    assert (found.name, found.model_extra, found.quality) == ("gamma", {"gamma": "2"}, 70)


def test_all_that_is_wrong_is_said_and_what_is_unknown_last() -> None:
    given = {"zip": 1, "quality": 0, "top_k": 0, "format": "bmp"}
    with pytest.raises(InvalidParameter) as refused:
        read(ProcessOptions, given)
    assert [each.path for each in refused.value.errors] == ["top_k", "format", "quality", "zip"]
    assert refused.value.detail.startswith("top_k: ")


def test_an_option_of_encoding_is_unknown_where_nothing_is_encoded() -> None:
    said = "quality: unknown option; there are top_k, function_to_apply"
    with pytest.raises(InvalidParameter, match=said):
        read(ClassifyOptions, {"quality": 70})


STRANGE = ["1_0", " 1", "1 ", "٣", "1e400", "NaN", "Infinity", "0x1", True, ""]


@pytest.mark.parametrize("given", STRANGE)
@pytest.mark.parametrize("name", ["top_k", "quality", "png_level", "avif_speed"])
def test_whole_numbers_are_written_in_plain_digits(name: str, given: object) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}: "):
        read(ProcessOptions, {name: given})
    assert getattr(read(ProcessOptions, {name: "5"}), name) == 5
