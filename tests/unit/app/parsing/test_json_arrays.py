"""Arrays in JSON: the numbers of any valid array, and a clear error for every other text."""

import json
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.parsing import json_arrays
from app.parsing.json_arrays import numbers, without_arrays
from models.domain.errors import MalformedRequest, ServiceError, TooLarge

STRINGS = 4

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def read(data: str, shape: Sequence[int], *, whole: bool = False) -> np.ndarray:
    """Return the numbers of an array that is the `data` of an input."""
    body = f'{{"inputs": [{{"data" : {data}, "name": "x"}}], "id": "a"}}'.encode()
    text, arrays = without_arrays(body, STRINGS)
    ((mark, array),) = arrays.items()
    assert json.loads(text) == {"inputs": [{"data": mark, "name": "x"}], "id": "a"}
    found = b"".join(numbers(body, array, list(shape), whole=whole))
    return np.frombuffer(found, np.uint8 if whole else np.float32)


@given(SHAPES, st.booleans(), st.integers(0, 2**32 - 1))
def test_nested_and_flat_lists_of_floats_are_read(shape: list[int], flat: bool, seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 10, shape).astype(np.float32)
    given_ = values.reshape(-1) if flat else values
    assert (read(json.dumps(given_.tolist()), shape) == values.reshape(-1)).all()


@given(SHAPES, st.integers(0, 2**32 - 1), st.sampled_from((None, 1)))
def test_whole_numbers_are_read(shape: list[int], seed: int, indent: int | None) -> None:
    values = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    text = json.dumps(values.tolist(), indent=indent)
    assert (read(text, shape, whole=True) == values.reshape(-1)).all()


def test_long_arrays_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_arrays, "PIECE", 50)
    values = np.random.default_rng(1).normal(0, 1, (40, 3, 5)).astype(np.float32)
    for given_ in (values, values.reshape(-1)):
        assert (read(json.dumps(given_.tolist()), values.shape) == values.reshape(-1)).all()


@pytest.mark.parametrize(
    "data",
    [
        "[1 2]",
        "[1][2]",
        "[1,,2]",
        "[1,]",
        "[,1]",
        "[1,2",
        "[[1,2]",
        "[1,2]]",
        "[[1],[2]]",
        "[[1,2],[3]]",
        "[1],[2]",
        "[01, 2]",
        "[1, 2e]",
        "[--1, 2]",
        "[1.5.2, 2]",
        "[]",
        "[[]]",
        "[1, true]",
        "[1, null]",
        '[1, "2"]',
        '["1", 2]',
        "[NaN, 1]",
        "[Infinity, 1]",
    ],
)
def test_other_texts_are_refused_or_have_another_count(data: str) -> None:
    n = 0
    with suppress(MalformedRequest, json.JSONDecodeError):  # the parser refuses what stands around
        n = len(read(data, [2]))
    assert n != 2, "two numbers were read of a text that is not an array of two"


@pytest.mark.parametrize("data", ["[1, 256]", "[-1, 1]", "[1.5, 1]", "[1e3, 1]"])
def test_levels_beyond_a_byte_are_refused(data: str) -> None:
    with pytest.raises(MalformedRequest, match="0 to 255"):
        read(data, [2], whole=True)


def test_numbers_beyond_float32_become_infinite() -> None:
    assert np.isinf(read("[1e39, -1e39]", [2])).all()


def test_strings_are_found_wherever_they_stand() -> None:
    body = b'{"data": [ "ab" , ["c"] ], "x": 1}'
    _, arrays = without_arrays(body, STRINGS)
    (array,) = arrays.values()
    assert [body[start:end] for start, end in array.strings] == [b"ab", b"c"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"data": ["a", "b", "c", "d", "e"]}', TooLarge),
        (b'{"data": ["a" "b"]}', MalformedRequest),
        (b'{"data": ["a', MalformedRequest),
        (b'{"data": ["a", 1]}', MalformedRequest),
        (b'{"data": [', MalformedRequest),
        (b"{" + b'"data": [1], ' * 9 + b"}", TooLarge),
        (b'{"x": "' + b"y" * (5 << 20) + b'"}', TooLarge),
    ],
)
def test_other_arrays_are_refused(body: bytes, error: type[ServiceError]) -> None:
    with pytest.raises(error):
        without_arrays(body, STRINGS)


def test_a_string_with_quotes_is_no_array() -> None:
    text = json.dumps({"id": '"data": [1, 2]', "inputs": []}).encode()
    assert without_arrays(text, STRINGS) == (text, {})


@given(st.binary(max_size=60).map(lambda some: b'{"data": [' + some))
def test_no_bytes_give_another_error(body: bytes) -> None:
    with suppress(MalformedRequest, TooLarge):
        _, arrays = without_arrays(body, STRINGS)
        for array in arrays.values():
            b"".join(numbers(body, array, [3], whole=False))
