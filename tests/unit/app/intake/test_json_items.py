"""Images and options of a JSON body."""

import asyncio
import base64
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.intake.item import Found, Options
from app.intake.json_items import (
    MOST_BYTES,
    from_base64,
    from_data_uri,
    json_items,
    json_line,
    parsed,
)
from app.intake.spool import Blob
from models.domain.errors import InvalidParameter, MalformedRequest, ServiceError, TooLarge
from models.settings import Settings
from tests.asgi import body_of

LONG = "data:image/png;base64," + base64.b64encode(b"long" * 20_000).decode()


def read(body: dict[str, Any]) -> tuple[list[Found], Options]:
    """Return the images and options of a body."""
    return asyncio.run(json_items(body_of(json.dumps(body).encode()), Settings()))


def test_long_data_of_images_is_decoded_and_other_data_is_an_option_as_it_stands() -> None:
    found, options = read({"data": LONG, "images": [{"data": LONG}], "ops": [{"data": LONG}]})
    assert options == [("data", LONG), ("ops", [{"data": LONG}])]
    ((content, _, _),) = found
    assert isinstance(content, Blob)
    assert content.read() == b"long" * 20_000


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
        return await json_line(Blob.of(json.dumps(line).encode()), Settings())

    content, _, _ = asyncio.run(scenario({"data": LONG}))
    assert isinstance(content, Blob)
    assert content.read() == b"long" * 20_000
    content, _, _ = asyncio.run(scenario({"url": {"data": LONG}}))
    assert isinstance(content, InvalidParameter)
    assert content.errors[0].given == {"data": LONG}
    content, _, id_ = asyncio.run(scenario({"id": "mine", "dta": LONG}))
    assert isinstance(content, InvalidParameter)
    assert content.detail == "dta: unknown key; an image has id, url, data; leave the key out"
    assert id_ == "mine"
    content, _, id_ = asyncio.run(scenario({"id": 7, "data": LONG}))
    assert isinstance(content, InvalidParameter)
    assert id_ is None


@pytest.mark.parametrize(
    ("body", "error", "wrong"),
    [
        (b"[" + b"[]," * 50_000 + b"1]", TooLarge, "more than 40000 strings, brackets"),
        (b"{" + b",".join(b'"k%d":1' % n for n in range(30_000)) + b"}", TooLarge, "more than"),
        (b"[" * 20_000 + b"]" * 20_000, TooLarge, "nested too deeply"),
        (b'{"a":NaN}', MalformedRequest, "not valid JSON"),
        (b'{"a":1e999}', MalformedRequest, "not valid JSON"),
        (b'{"a', MalformedRequest, "not valid JSON"),
        (b'{"a":"\xff"}', MalformedRequest, "not valid JSON"),
        (b'{"a":"\\ud800"}', MalformedRequest, "not valid JSON"),
        (b'{"a":' + b"1" * 5000 + b"}", MalformedRequest, "not valid JSON"),
    ],
    ids=["lists", "keys", "deep", "nan", "infinite", "end", "bytes", "surrogate", "digits"],
)
def test_structure_is_bounded_and_numbers_are_finite(
    body: bytes, error: type[ServiceError], wrong: str
) -> None:
    with pytest.raises(error, match=re.escape(wrong)):
        parsed(Blob.of(body), 0)


def test_a_byte_order_mark_before_the_text_is_skipped() -> None:
    assert parsed(Blob.of(b'\xef\xbb\xbf{"a": 1}'), 0) == {"a": 1}


def test_a_larger_body_is_refused_with_a_way_out() -> None:
    with pytest.raises(TooLarge, match=f"at most {MOST_BYTES} bytes; send larger images as multi"):
        read({"a": "x" * MOST_BYTES})


HEAD = "data:image/png;base64,"


def forgiving(digits: str) -> bytes:
    """Decode by the steps of https://infra.spec.whatwg.org/#forgiving-base64-decode."""
    digits = re.sub("[\t\n\f\r ]", "", digits)
    if len(digits) % 4 == 0:
        digits = re.sub("={1,2}$", "", digits)
    if len(digits) % 4 == 1 or not re.fullmatch("[A-Za-z0-9+/]*", digits):
        raise ValueError(digits)
    return base64.b64decode(digits + "=" * (-len(digits) % 4))


@given(st.text("AB+/= \n", max_size=20))
def test_base64_that_the_specification_refuses_is_refused(digits: str) -> None:
    try:
        expected = forgiving(digits)
    except ValueError:
        with pytest.raises(MalformedRequest, match="not valid base64"):
            from_data_uri(HEAD + digits)
    else:
        assert from_data_uri(HEAD + digits) == expected


@given(st.binary(max_size=200))
def test_any_bytes_come_back(data: bytes) -> None:
    digits = base64.b64encode(data)
    assert from_base64(digits, "the element") == data
    assert from_data_uri(HEAD + quote(digits.decode(), safe="")) == data
    assert from_data_uri("data:image/png," + quote(data, safe="")) == data


@pytest.mark.parametrize(
    "written",
    [
        "data:image/png;base64,aG VsbG8\n=",
        "data:image/png;base64,aGVsbG8",
        "data:image/png;base64,aGVs%62G8%3D",
        "data:image/png; base64,aGVsbG8=",
        "data:image/png;   BASE64 ,aGVsbG8=",
        "DATA:;base64,aGVsbG8=",
        "data:;charset=utf-8;base64,aGVsbG8=#fragment",
        " \n data:text/plain;base64,aGVsbG8=\r\n",
        "data:,hello",
        "data:image/png,%68%65llo",
        "data:image/png,hel%6Co#fragment",
        "da\nta:image/png,h\te\nllo",
    ],
)
def test_a_data_uri_is_read_as_browsers_read_it(written: str) -> None:
    assert from_data_uri(written) == b"hello"


def test_a_percent_sign_without_two_digits_stays() -> None:
    assert from_data_uri("data:,100%, %4 and %zz%41") == b"100%, %4 and %zzA"


@pytest.mark.parametrize("uri", ["", "data:image/png;base64", "image/png;base64,AA==", "x" * 300])
def test_what_is_no_data_uri_is_malformed(uri: str) -> None:
    with pytest.raises(MalformedRequest, match="not a data URI"):
        from_data_uri(uri)


@pytest.mark.parametrize("end", ["\\", "é", "\ud800", "-_", "%", "%4", "\0"])
def test_nonsense_among_the_digits_is_malformed(end: str) -> None:
    with pytest.raises(MalformedRequest, match="not valid base64"):
        from_data_uri(HEAD + "AAAA" + end)
