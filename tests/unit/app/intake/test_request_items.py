"""The images and options of forms that people filled in only in part."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.admission import Admission, Limits
from app.intake.item import Item, Url
from app.intake.request_items import collect
from models.domain.errors import MalformedRequest
from models.settings import Settings


def form(*fields: tuple[str, str | None, str]) -> tuple[tuple[Item, ...], dict[str, Any]]:
    """Read a form of fields: their names, the names of their files or None, and their texts."""
    body = ""
    for name, filename, text in fields:
        of_file = "" if filename is None else f'; filename="{filename}"'
        body += f'--b\r\nContent-Disposition: form-data; name="{name}"{of_file}\r\n\r\n{text}\r\n'

    async def receive() -> Message:
        return {"type": "http.request", "body": (body + "--b--\r\n").encode()}

    async def scenario() -> tuple[tuple[Item, ...], dict[str, Any]]:
        headers = [(b"content-type", b"multipart/form-data; boundary=b")]
        scope = {"type": "http", "headers": headers, "query_string": b"", "method": "POST"}
        with Admission(Limits(images=8, bytes=1 << 20, arriving=1 << 20)).enter() as permit:
            return await collect(Request(scope, receive), permit, Settings())

    return asyncio.run(scenario())


EMPTY = [("files", "", ""), ("urls", None, ""), ("urls", None, " \t"), ("url", None, "")]


def test_what_was_left_empty_counts_as_nothing() -> None:
    found = form(*EMPTY, ("file", "a.jpg", "x"), ("top_k", None, ""), ("top_k", None, "3"))
    (item,), options = found
    assert (item.source, options) == ("a.jpg", {"top_k": "3"})


@pytest.mark.parametrize("name", ["urls", "url"])
def test_an_address_stands_without_the_blanks_around_it(name: str) -> None:
    (item,) = form(*EMPTY, (name, None, " https://example.org/a.jpg\r\n"))[0]
    assert item.content == Url("https://example.org/a.jpg")


def test_a_form_with_nothing_in_it_has_no_image() -> None:
    with pytest.raises(MalformedRequest, match="no image: send"):
        form(*EMPTY)
