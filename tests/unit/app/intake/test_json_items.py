"""Images and options of a JSON body."""

import asyncio
import base64
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.intake.item import Found, Options
from app.intake.json_items import json_items, json_line
from app.intake.spool import Blob
from app.parsing.structure import SHORT
from models.domain.errors import InvalidParameter
from models.settings import Settings

LONG = "data:image/png;base64," + base64.b64encode(b"long" * SHORT).decode()


def read(body: dict[str, Any]) -> tuple[list[Found], Options]:
    """Return the images and options of a body."""

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def scenario() -> tuple[list[Found], Options]:
        return await json_items(Request({"type": "http"}, receive), "client", Settings())

    return asyncio.run(scenario())


def test_long_data_of_images_is_decoded_and_other_data_is_an_option_as_it_stands() -> None:
    found, options = read({"data": LONG, "images": [{"data": LONG}], "ops": [{"data": LONG}]})
    assert options == [("data", LONG), ("ops", [{"data": LONG}])]
    ((content, _, _),) = found
    assert isinstance(content, Blob)
    assert content.read() == b"long" * SHORT


@pytest.mark.parametrize(
    "body",
    [
        {"images": [[{"data": LONG}]]},
        {"images": {"data": LONG}},
        {"images": [{"url": {"data": LONG}}]},
        {"images": [{"data": LONG, "id": [{"data": LONG}]}]},
        {"urls": [{"data": LONG}]},
    ],
)
def test_an_error_shows_the_value_that_was_given(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter) as wrong:
        read(body)
    assert [each.given for each in wrong.value.errors]
    for each in wrong.value.errors:
        assert LONG in json.dumps(each.given)


def test_a_line_is_one_image() -> None:
    async def scenario(line: dict[str, Any]) -> Found:
        return await json_line(json.dumps(line).encode(), Settings())

    content, _, _ = asyncio.run(scenario({"data": LONG}))
    assert isinstance(content, Blob)
    assert content.read() == b"long" * SHORT
    content, _, _ = asyncio.run(scenario({"url": {"data": LONG}}))
    assert isinstance(content, InvalidParameter)
    assert content.errors[0].given == {"data": LONG}
