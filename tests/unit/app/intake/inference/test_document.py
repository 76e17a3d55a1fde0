"""The JSON of inference requests: whole numbers are those of 64 bits."""

import json
from typing import Any

import pytest

from app.intake.inference.protocol import Document, read_document, timeout_of
from models.domain.errors import MalformedRequest

PIXELS: dict[str, Any] = {"name": "PIXELS", "datatype": "UINT8", "shape": [1, 8, 8, 3]}


def read(**changes: Any) -> Document:
    return read_document(json.dumps({"inputs": [PIXELS]} | changes).encode(), 64)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**400, 10**4290])
def test_numbers_of_more_than_64_bits_are_400(number: int) -> None:
    for changes in (
        {"inputs": [PIXELS | {"shape": [1, number, number, 3]}]},
        {"inputs": [PIXELS | {"parameters": {"binary_data_size": number}}]},
        {"outputs": [{"name": "SCORES", "parameters": {"classification": number}}]},
        {"parameters": {"timeout": number}},
    ):
        with pytest.raises(MalformedRequest, match=r"`int` [<>]=|out of range"):
            read(**changes)


def test_the_largest_number_is_read() -> None:
    most = (1 << 63) - 1
    assert timeout_of(read(parameters={"timeout": most})) == pytest.approx(most / 1e6)
    assert read(inputs=[PIXELS | {"shape": [most]}]).inputs[0].shape == [most]
