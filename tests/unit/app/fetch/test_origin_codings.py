"""Bodies of origins that name a `Content-Encoding`, although none was asked for."""

import gzip
import zlib

import pytest

from models.domain.errors import OriginFailed, TooLarge
from tests.shared import SHARED
from tests.unit.app.fetch.test_hostile_origins import LIMITS, fails, fetched, raw

CASES = sorted((SHARED / "cases").glob("origin_content_encoding_*.response"))


def coded(coding: str, body: bytes) -> bytes:
    """Return a whole answer whose header names the coding."""
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    "name", ["", "identity", "UTF-8", "binary", "none", "8bit", "image/jpeg", "utf-8, identity"]
)
def test_a_name_that_is_no_compression_is_ignored(name: str) -> None:
    assert fetched(raw(coded(name, b"image"))) == (b"image", 1)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("gzip", gzip.compress(b"image", mtime=0)),
        ("X-GZIP, utf-8", gzip.compress(b"im", mtime=0) + gzip.compress(b"age", mtime=0)),
        ("deflate", zlib.compress(b"image")),
        ("deflate", zlib.compress(b"image", wbits=-15)),
    ],
)
def test_what_can_be_unpacked_is_unpacked(name: str, body: bytes) -> None:
    assert fetched(raw(coded(name, body))) == (b"image", 1)


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "gzip, br", "gzip, gzip"])
def test_any_other_compression_is_named(name: str) -> None:
    fails(raw(coded(name, b"image")), f"sent a body compressed by {name} although")


@pytest.mark.parametrize("name", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [b"image", b"", gzip.compress(b"image", mtime=0)[:-1]])
def test_a_body_that_is_not_what_its_coding_says_is_an_error(name: str, body: bytes) -> None:
    found, asked = fetched(raw(coded(name, body)))
    assert isinstance(found, OriginFailed)
    assert f"{name}" in found.detail
    assert asked == 1


def test_an_unpacked_body_has_the_limit_of_an_image() -> None:
    found, _ = fetched(raw(coded("gzip", gzip.compress(bytes(LIMITS.max_bytes)))))
    assert found == bytes(LIMITS.max_bytes)
    found, _ = fetched(raw(coded("gzip", gzip.compress(bytes(LIMITS.max_bytes + 1)))))
    assert isinstance(found, TooLarge)


@pytest.mark.skipif(not CASES, reason="the reported answers are not beside this checkout")
@pytest.mark.parametrize("case", [path.name for path in CASES])
def test_the_reported_answers_are_images(case: str) -> None:
    found, _ = fetched(raw((SHARED / "cases" / case).read_bytes()))
    assert isinstance(found, bytes)
    assert found[:3] == b"\xff\xd8\xff"
    assert found[-2:] == b"\xff\xd9"
