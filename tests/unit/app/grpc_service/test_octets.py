"""Numbers of a UINT8 tensor that protobuf packed."""

import tracemalloc

import numpy as np
import pytest

from app.grpc_service.messages import message_class
from app.grpc_service.octets import PART, octets
from models.domain.errors import MalformedRequest

Contents = message_class("inference.InferTensorContents")
TAG = 1
"""Bytes before the length of a packed field."""


def packed(values: list[int]) -> memoryview:
    body = memoryview(Contents(uint_contents=values).SerializeToString())
    place = TAG
    while body[place] & 128:
        place += 1
    return body[place + 1 :]


def test_numbers_of_one_and_two_bytes_are_decoded_across_parts() -> None:
    values = np.random.default_rng(0).integers(0, 256, PART * 3, np.uint8)
    assert octets([packed(values.tolist())]) == values.tobytes()
    assert octets([packed([7] * (PART + 1)), memoryview(b"\xff\x01")]) == bytes(
        [7] * PART + [7, 255]
    )
    assert octets([]) == b""


@pytest.mark.parametrize(
    "given", [[256], [1, 300, 2], [1 << 14], [(1 << 32) - 1, 0]], ids=["256", "300", "long", "all"]
)
def test_larger_numbers_are_refused(given: list[int]) -> None:
    with pytest.raises(MalformedRequest, match="0 to 255"):
        octets([packed(given)])


@pytest.mark.parametrize("given", [b"\x80", b"\x01\x80", b"\x80" * (PART + 5)], ids=range(3))
def test_a_number_that_does_not_end_is_refused(given: bytes) -> None:
    with pytest.raises(MalformedRequest):
        octets([memoryview(given)])


def test_memory_is_a_few_times_that_of_the_message() -> None:
    given = packed([255] * (4 << 20))
    tracemalloc.start()
    try:
        octets([given])
        assert tracemalloc.get_traced_memory()[1] < 4 * len(given)
    finally:
        tracemalloc.stop()
