"""Data URIs give the same bytes and the same errors as one call of the library."""

import base64
import json

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
        assert uri.size == len(data)


@given(st.text("AB+/=", max_size=12))
def test_what_the_library_refuses_is_refused(digits: str) -> None:
    try:
        expected = base64.b64decode(digits, validate=True)
    except ValueError:
        with pytest.raises(MalformedRequest, match="not valid base64"):
            decoded(standing(HEAD + digits))
    else:
        assert decoded(standing(HEAD + digits)) == expected


@given(st.binary(min_size=30, max_size=300), st.integers(64, 120))
def test_escapes_of_json_are_read_also_where_a_piece_ends(data: bytes, piece: int) -> None:
    written = base64.b64encode(data).decode()
    for plain, escaped in (("/", "\\/"), ("+", "\\u002B"), ("=", "\\u003d"), ("A", "\\u0041")):
        written = written.replace(plain, escaped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_uri, "PIECE", piece)
        uri = standing(HEAD.replace("/", "\\/") + written)
        assert decoded(uri) == data
        assert uri.size == 0


def test_padding_belongs_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_uri, "PIECE", 40)
    with pytest.raises(MalformedRequest, match="not valid base64"):
        decoded(standing(HEAD + "AAAAAAAAAAAA==" + "AAAA" * 20))


@pytest.mark.parametrize("uri", ["", "data:image/png,abc", "image/png;base64,AA==", "x" * 300])
def test_what_is_no_data_uri_is_malformed(uri: str) -> None:
    with pytest.raises(MalformedRequest, match="not a data URI"):
        decoded(DataUri.of(uri))


@pytest.mark.parametrize("end", ["\\", "\\u00", "\\x", "é", "\\ud800", "\n", "\\u0000"])
def test_nonsense_among_the_digits_is_malformed(end: str) -> None:
    with pytest.raises(MalformedRequest, match="not valid base64"):
        decoded(standing(HEAD + "AAAA" + end))


def test_a_parsed_uri_is_the_same() -> None:
    assert decoded(DataUri.of(HEAD + "aGk=")) == b"hi"
    assert json.loads('"' + HEAD + 'aGk="') == HEAD + "aGk="
