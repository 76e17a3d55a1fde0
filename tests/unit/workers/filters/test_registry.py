import math

import numpy as np
import pytest
from hypothesis import given

from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from tests.unit.workers.filters.images import images
from workers.filters.base import ArrayFilter
from workers.filters.registry import FILTERS, USUAL, describe, nanoseconds, parse_chain, parse_one
from workers.operations import FilterChain


@pytest.mark.parametrize("name", FILTERS)
@given(pixels=images())
def test_every_filter_has_the_stated_shape_and_leaves_its_input_which_may_be_a_view(
    name: str, pixels: Pixels
) -> None:
    (example,) = parse_chain([FILTERS[name].example])
    for filter_ in (parse_one(name, {}), *([example] if name != "crop" else [])):
        before, view = pixels.copy(), pixels[::-1, ::2].transpose(1, 0, 2)
        result = filter_.apply(pixels)
        assert np.array_equal(pixels, before)
        assert result.dtype == np.uint8
        assert result.shape == filter_.measured(pixels).shape_after(pixels.shape)
        assert result.flags.c_contiguous
        assert np.array_equal(filter_.apply(view), filter_.apply(view.copy()))


@pytest.mark.parametrize(
    "name", [n for n, f in FILTERS.items() if f.alpha_rule in ("point", "keep")]
)
@given(pixels=images(channels=(4,)))
def test_alpha_is_copied_and_colours_are_treated_as_if_there_was_none(
    name: str, pixels: Pixels
) -> None:
    (filter_,) = parse_chain([FILTERS[name].example])
    result = filter_.apply(pixels)
    assert np.array_equal(result[:, :, 3], pixels[:, :, 3])
    opaque = filter_.apply(np.ascontiguousarray(pixels[:, :, :3]))
    assert np.array_equal(result[:, :, :3], opaque)


def test_every_filter_has_kernels_or_is_computed_by_torch() -> None:
    for name in FILTERS:
        for step in FilterChain((parse_one(name, {}),)).steps:
            assert step.device_passes or isinstance(step, ArrayFilter) or step.measures


def test_every_filter_describes_itself_and_its_parameters() -> None:
    for name in FILTERS:
        shown = describe(FILTERS[name])
        assert shown["name"] == name
        assert shown["description"].endswith(".")
        assert shown["alpha"] in ("point", "premul", "plane", "keep", "drop", "over", "shape")
        for parameter in shown["parameters"].values():
            assert parameter["description"]
            assert "default" in parameter
            number = parameter.get("anyOf", [parameter])[0].get("type") in ("number", "integer")
            other = parameter.get("type") == "boolean" or "takes" in parameter
            assert "unit" in parameter if number else other or parameter["enum"]
        assert parse_chain([shown["example"]])[0].name == name


def test_a_wrong_chain_is_refused_with_every_path() -> None:
    for ops, paths in [
        ("invert", ["ops"]),
        ([], ["ops"]),
        ([{"name": "invert"}] * 33, ["ops"]),
        (["invert"], ["ops[0]"]),
        ([{}], ["ops[0].name"]),
        ([{"name": "blur"}], ["ops[0].name"]),
        ([{"name": []}], ["ops[0].name"]),
        ([{"name": {"invert": 1}}], ["ops[0].name"]),
        (b"[]", ["ops"]),
        ([{"name": "gaussian_blur", "sigma": "2.5"}], ["ops[0].sigma"]),
        ([{"name": "sobel", "axis": True}], ["ops[0].axis"]),
        (
            [{"name": "gaussian_blur", "sigma": True, "radius": 1}],
            ["ops[0].sigma", "ops[0].radius"],
        ),
        ([{"name": "gaussian_blur", "sigma": math.inf}], ["ops[0].sigma"]),
        ([{"name": "gaussian_blur", "sigma": [2]}], ["ops[0].sigma"]),
        ([{"name": "median", "size": 3.5}], ["ops[0].size"]),
        ([{"name": "median", "size": 1}, {"name": "nope"}], ["ops[0].size", "ops[1].name"]),
    ]:
        with pytest.raises(InvalidParameter) as refused:
            parse_chain(ops)
        assert [e.path for e in refused.value.errors] == paths


def test_a_number_beyond_its_range_is_refused_with_path_range_and_what_was_given() -> None:
    for name in FILTERS:
        for key, schema in describe(FILTERS[name])["parameters"].items():
            number = schema.get("anyOf", [schema])[0]
            for end, beyond in (("minimum", -2), ("maximum", 2)):
                if end in number:
                    given = number[end] + beyond
                    with pytest.raises(InvalidParameter) as refused:
                        parse_chain([{**FILTERS[name].example, key: given}])
                    (error,) = refused.value.errors
                    assert (error.path, error.given) == (f"ops[0].{key}", given)
                    said = f"from {number['minimum']} to {number['maximum']}"
                    assert said in error.message
                    assert error.message.endswith(f"is needed, not {given}")


def test_a_refusal_says_what_is_allowed_and_what_was_given() -> None:
    for op, message in [
        (
            {"name": "gaussian_blur", "sigma": 200},
            "ops[0].sigma: a number from 0.1 to 100 px is needed, not 200",
        ),
        (
            {"name": "median", "size": 4},
            "ops[0].size: an odd whole number from 3 to 101 px is needed, not 4",
        ),
        (
            {"name": "brightness", "factor": math.nan},
            "ops[0].factor: a number from 0 to 8 is needed, not nan",
        ),
        ({"name": "sobel", "axis": "z"}, "ops[0].axis: one of x, y, mag is needed, not 'z'"),
        (
            {"name": "gaussian_blur", "radius": 2},
            "ops[0].radius: unknown parameter; gaussian_blur takes sigma, sigma_y",
        ),
        (
            {"name": "levels", "in_black": 90, "in_white": 80},
            "ops[0].in_white: a whole number from 1 to 255, above in_black, is needed, not 80",
        ),
        (
            {"name": "autocontrast", "preserve_tone": "perhaps"},
            "ops[0].preserve_tone: true or false is needed, not 'perhaps'",
        ),
        ({"name": "invert", "x": 2}, "ops[0].x: unknown parameter; invert takes no parameters"),
        ({"name": "medain"}, "ops[0].name: no filter 'medain'; did you mean 'median'"),
    ]:
        with pytest.raises(InvalidParameter) as refused:
            parse_chain([op])
        assert refused.value.detail.startswith(message)


NAN = math.nan
WRONG: dict[tuple[str, str], tuple[str, list[object]]] = {
    ("convolve", "kernel"): (
        "a list of 1 to 31 equally long rows of 1 to 31 numbers",
        [
            *([], [[]], [1, 2], [[1, 2], [3]], [[1] * 32], [[1]] * 32, [[1001]], [[NAN]], [["1"]]),
            *([[True]], "1,2;3", "1;;2", "x", 3, None),
        ],
    ),
    ("color_matrix", "matrix"): (
        "a list of 12 numbers from -8 to 8 is needed",
        [[1] * 11, [9] * 12, [NAN] * 12, ["1"] * 12, [True] * 12, "1,2,x", 5, None],
    ),
    ("fft_filter", "notches"): (
        "a list of 1 to 16 pairs of numbers from -0.5 to 0.5 is needed",
        [[0.1, 0.2], [[0.1]], [[0.6, 0]], [[NAN, 0]], [[0, 0]] * 17, "0,0;x,0", None],
    ),
    ("colorize", "black"): (
        "a colour such as ff8800 or f80 is needed",
        ["red", "#12345", "#1234567", "", "#12345g", "##123456", 7, None],
    ),
}


@pytest.mark.parametrize(("name", "parameter"), WRONG)
def test_what_is_no_kernel_matrix_or_colour_is_refused_with_what_is_needed(
    name: str, parameter: str
) -> None:
    needed, values = WRONG[name, parameter]
    for value in values:
        with pytest.raises(InvalidParameter, match=needed):
            parse_chain([{"name": name, parameter: value}])


def test_a_refusal_does_not_repeat_endless_input() -> None:
    with pytest.raises(InvalidParameter) as refused:
        parse_chain([{"name": "x" * 100_000}])
    assert len(refused.value.detail) < 600


def test_a_wrong_query_is_refused_with_the_name_of_the_parameter() -> None:
    for path, value in (("sigma", "nan"), ("sigma", "true"), ("sigma", True), ("size", "3")):
        with pytest.raises(InvalidParameter) as refused:
            parse_one("gaussian_blur", {path: value})
        assert [e.path for e in refused.value.errors] == [path]


@pytest.mark.parametrize(
    ("name", "parameter", "text", "value"),
    [
        ("gaussian_blur", "sigma", "2.5", 2.5),
        ("convolve", "kernel", "0,-1,0;-1,5.5,-1", [[0, -1, 0], [-1, 5.5, -1]]),
        (
            "color_matrix",
            "matrix",
            "0,1,0,0, 0,0,1,0, 1,0,0,.5",
            [0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0.5],
        ),
    ],
)
def test_a_number_a_kernel_and_a_matrix_may_be_text_in_a_query(
    name: str, parameter: str, text: str, value: object
) -> None:
    assert parse_one(name, {parameter: text}) == parse_chain([{"name": name, parameter: value}])[0]


def test_the_times_of_a_chain_add_up_and_parameters_count() -> None:
    assert nanoseconds(parse_chain([{"name": "invert"}, {"name": "sepia"}])) == 2 * USUAL
    few, many = ({"name": "nl_means", "search": search} for search in (3, 21))
    assert nanoseconds(parse_chain([many])) == 49 * nanoseconds(parse_chain([few]))
    whole, faces = ({"name": "redact", "regions": [[0, 0, side, side]] * 9} for side in (1, 0.1))
    times = [nanoseconds(parse_chain([each | {"unit": "share"}])) for each in (whole, faces)]
    assert times == [9 * USUAL, USUAL]
