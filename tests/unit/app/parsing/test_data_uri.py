"""Data URIs give the bytes that the specifications of browsers give, however they are cut."""

import base64
import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.parsing import data_uri
from app.parsing.data_uri import DataUri
from models.domain.errors import MalformedRequest

HEAD = "data:image/png;base64,"


def standing(content: str) -> DataUri:
    """Return a data URI as a client wrote it into JSON."""
    text = b"[" + content.encode() + b"]"
    return DataUri(text, 1, len(text) - 1)


def decoded(uri: DataUri) -> bytes:
    return b"".join(uri.pieces())


@given(st.binary(max_size=200), st.integers(30, 60))
def test_any_bytes_come_back_however_they_are_cut(data: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_uri, "PIECE", piece)
        uri = standing(HEAD + base64.b64encode(data).decode())
        assert decoded(uri) == data


def forgiving(digits: str) -> bytes:
    """Decode by the steps of https://infra.spec.whatwg.org/#forgiving-base64-decode."""
    digits = re.sub("[\t\n\f\r ]", "", digits)
    if len(digits) % 4 == 0:
        digits = re.sub("={1,2}$", "", digits)
    if len(digits) % 4 == 1 or not re.fullmatch("[A-Za-z0-9+/]*", digits):
        raise ValueError(digits)
    return base64.b64decode(digits + "=" * (-len(digits) % 4))


@given(st.text("AB+/= \n", max_size=20), st.integers(24, 60))
def test_what_the_specification_refuses_is_refused(digits: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_uri, "PIECE", piece)
        uri = DataUri.of(HEAD + digits)
        try:
            expected = forgiving(digits)
        except ValueError:
            with pytest.raises(MalformedRequest, match="not valid base64"):
                decoded(uri)
        else:
            assert decoded(uri) == expected


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
@pytest.mark.parametrize("piece", [32, 36, 1 << 18])
def test_a_data_uri_is_read_as_browsers_read_it(
    written: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_uri, "PIECE", piece)
    assert decoded(DataUri.of(written)) == b"hello"


def test_a_percent_sign_without_two_digits_stays() -> None:
    assert decoded(DataUri.of("data:,100%, %4 and %zz%41")) == b"100%, %4 and %zzA"


@given(st.binary(max_size=200), st.integers(24, 60))
def test_percent_encoded_bytes_come_back_however_they_are_cut(data: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_uri, "PIECE", piece)
        assert decoded(standing("data:image/png," + quote(data, safe=""))) == data
        digits = quote(base64.b64encode(data).decode(), safe="")
        assert decoded(standing(HEAD + digits)) == data


@given(st.binary(min_size=30, max_size=300), st.integers(64, 120))
def test_escapes_of_json_are_read_also_where_a_piece_ends(data: bytes, piece: int) -> None:
    written = base64.b64encode(data).decode()
    for plain, escaped in (("/", "\\/"), ("+", "\\u002B"), ("=", "\\u003d"), ("A", "\\u0041")):
        written = written.replace(plain, escaped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_uri, "PIECE", piece)
        uri = standing(HEAD.replace("/", "\\/") + written)
        assert decoded(uri) == data


def test_padding_belongs_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_uri, "PIECE", 40)
    with pytest.raises(MalformedRequest, match="not valid base64"):
        decoded(standing(HEAD + "AAAAAAAAAAAA==" + "AAAA" * 20))


@pytest.mark.parametrize("uri", ["", "data:image/png;base64", "image/png;base64,AA==", "x" * 300])
def test_what_is_no_data_uri_is_malformed(uri: str) -> None:
    with pytest.raises(MalformedRequest, match="not a data URI"):
        decoded(DataUri.of(uri))


@pytest.mark.parametrize("end", ["\\", "\\u00", "\\x", "é", "\\ud800", "-_", "%", "%4", "\\u0000"])
def test_nonsense_among_the_digits_is_malformed(end: str) -> None:
    with pytest.raises(MalformedRequest, match="not valid base64"):
        decoded(standing(HEAD + "AAAA" + end))


def test_a_parsed_uri_is_the_same() -> None:
    assert decoded(DataUri.of(HEAD + "aGk=")) == b"hi"
    assert json.loads('"' + HEAD + 'aGk="') == HEAD + "aGk="


@pytest.mark.parametrize(
    ("content", "plain"), [("AA==", True), ("AA%3D", False), ("A\\nA", False), ("\\u0025", False)]
)
def test_what_has_to_be_unescaped_is_not_plain(content: str, plain: bool) -> None:
    assert standing(HEAD + content).is_plain is plain
