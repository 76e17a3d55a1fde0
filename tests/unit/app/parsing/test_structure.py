"""The structure of JSON is bounded before anything is made of it."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.parsing import structure
from app.parsing.structure import DEEPEST, SHORT, Bounds, Cut, cut
from models.domain.errors import InvalidParameter, MalformedRequest, TooLarge

TEXTS = st.text(max_size=100)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS | st.just("data"), inner),
    max_leaves=20,
)


def restored(found: Cut, body: bytes) -> Any:
    """Return the parsed text with its long strings back in their places."""

    def back(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: back(each) for key, each in value.items()}
        if isinstance(value, list):
            return [back(each) for each in value]
        if isinstance(value, str) and value in found.spans:
            start, end = found.spans[value]
            return json.loads(body[start - 1 : end + 1])
        return value

    return back(json.loads(found.text))


@given(VALUES, st.booleans())
def test_what_is_within_the_bounds_stays_as_it_is(value: object, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    found = cut(body, Bounds())
    assert restored(found, body) == value
    assert found.text == body or found.spans


@pytest.mark.parametrize("end", ["", "\\\\", '\\"', "\\/", "é", "]},"])
def test_long_data_is_cut_out_and_found_again(end: str) -> None:
    long = "a" * (SHORT + 1) + end
    body = b'{"images":[{"data":"%s"},{"data":"b","url":"c"}],"x":[1,2]}' % long.encode()
    found = cut(bytearray(body), Bounds())
    ((name, (start, stop)),) = found.spans.items()
    assert body[start:stop].decode() == long
    assert name not in body.decode()
    assert len(found.text) < 150
    assert restored(found, body) == json.loads(body)


def test_a_byte_order_mark_before_the_text_is_skipped() -> None:
    body = b'\xef\xbb\xbf{"images":[{"data":"%s"}]}' % (b"a" * (SHORT + 1))
    for text in (body, bytearray(body)):
        found = cut(text, Bounds())
        assert restored(found, body) == json.loads(body.removeprefix(b"\xef\xbb\xbf"))


@pytest.mark.parametrize(
    "body",
    [
        b"{" + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}",
        b"[" + b",".join([b"[]"] * 200_000) + b"]",
        b'{"urls":[' + b",".join([b'"u"'] * 100_000) + b"]}",
        b'{"images":[' + b",".join([b"[[],[]]"] * 100_000) + b"]}",
        b'{"a":"' + b'\\"' * 100_000 + b'"}',
    ],
    ids=["keys", "lists", "urls", "images", "escaped quotes"],
)
def test_too_much_structure_is_refused(body: bytes) -> None:
    with pytest.raises(TooLarge, match="more than 40000 strings, brackets"):
        cut(body, Bounds())


def test_only_so_much_of_a_large_body_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, count = [], structure._Scan._count

    def counting(self: structure._Scan) -> None:
        counted.append(1)
        count(self)

    monkeypatch.setattr(structure._Scan, "_count", counting)
    with pytest.raises(TooLarge):
        cut(b"[],"[:2] * 1_000_000, Bounds(tokens=1000))
    assert len(counted) == 1001


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"[" * (DEEPEST + 1), "nested deeper than 32"),
        (b'{"a":' * (DEEPEST + 1), "nested deeper than 32"),
        (b'{"a":' + b"1" * 100_000 + b"}", "a number or white space"),
        (b" " * 100_000, "a number or white space"),
        (b'{"a":"' + b"x" * (2 << 20) + b'"}', "a string of 2097152 bytes"),
        (b'{"' + b"k" * 2000 + b'":1}', "a key of 2000 bytes"),
        (b'{"a":"' + b"\\" * 5000 + b'"}', "backslashes in a row"),
        (b'["' + b'","'.join([b"x" * 1_000_000] * 5) + b'"]', "apart from `data`"),
    ],
    ids=["lists", "objects", "number", "space", "string", "key", "backslashes", "strings"],
)
def test_each_bound_says_what_it_is(body: bytes, wrong: str) -> None:
    with pytest.raises(TooLarge, match=re.escape(wrong)):
        cut(body, Bounds())


def test_more_images_may_have_more_tokens_and_text() -> None:
    assert Bounds.of(64).tokens > Bounds.of(1).tokens > Bounds().tokens
    assert Bounds.of(64).text > Bounds.of(1).text > Bounds().text


@pytest.mark.parametrize(
    "body",
    [b'{"top_k":1,"top_k":2}', b'{"top_k":1,"top\\u005fk":2}', b'{"a":[{"top_k":1,"top_k":1}]}'],
)
def test_a_key_that_stands_twice_in_an_object_is_an_error(body: bytes) -> None:
    with pytest.raises(InvalidParameter, match="top_k: given more than once"):
        cut(body, Bounds())


def test_the_same_key_may_stand_in_several_objects() -> None:
    body = b'{"a":{"b":"a","c":["b","b"]},"b":[{"a":1},{"a":"c"}],"c":{}}'
    assert cut(body, Bounds()).text == body


@pytest.mark.parametrize("body", [b'{"a', b'{"a":"x', b'{"a":"x\\"', b'{"\\x":1}', b'{"\xff":1}'])
def test_strings_without_an_end_and_strange_keys_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="not valid JSON"):
        cut(body, Bounds())


@example('{}""')
@given(st.text('{}[],:"a\\1 ', max_size=40))
def test_nonsense_is_left_to_the_parser_or_refused(text: str) -> None:
    try:
        found = cut(text.encode(), Bounds())
    except (MalformedRequest, InvalidParameter):
        return
    assert found.text == text.encode()
