"""Entity tags: what they depend on, and which answers have headers about caching."""

import pytest
from fastapi import Request

from app.intake.item import Item
from app.intake.spool import Blob
from app.intake.wanted import ImageRequest, OutputFormat, Version
from app.pipeline.outcomes import Timings
from app.responses.answers import Rendering
from app.routes import images
from app.routes.images import _described, caching_headers, entity_tag
from models.codec import Encoding, ImageFormat
from models.codec.encoder import codec_versions
from models.settings import Settings
from workers.filters.registry import parse_chain
from workers.operations import FilterChain


def request(**headers: str) -> Request:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "path": "/", "headers": named})


def asked() -> ImageRequest:
    """Return a request for one filtered image."""
    chain = FilterChain(parse_chain([{"name": "sepia"}]))
    version = Version(chain, OutputFormat(ImageFormat.JPEG), Encoding())
    return ImageRequest((Item(0, Blob.of(b"")),), version)


@pytest.mark.parametrize(
    ("digests", "described", "same"),
    [
        ([b"a", b"b"], {"name": "x", "sigma": "2"}, True),
        ([b"b", b"a"], {"sigma": "2", "name": "x"}, False),
        ([b"a"], {"sigma": "2", "name": "x"}, False),
        ([b"a", b"b"], {"sigma": "3", "name": "x"}, False),
        ([b"a", b"b"], {"id": "\ud800", "n": [1.5, None]}, False),
    ],
)
def test_contents_in_their_order_and_options_make_a_tag(
    digests: list[bytes], described: object, same: bool
) -> None:
    tag = entity_tag([b"a", b"b"], {"sigma": "2", "name": "x"})
    assert (entity_tag(digests, described) == tag) is same
    one, other = (entity_tag([], {"overlay": pixels}) for pixels in (b"\0", b"\1"))
    assert one != other


def test_another_version_of_a_codec_gives_another_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    def tag() -> str:
        rendering = Rendering({}, {}, Timings())
        return entity_tag([], _described(request(), asked(), rendering, {}))

    before = tag()
    assert tag() == before
    newer = {**codec_versions(), "webp": "99"}
    monkeypatch.setattr(images, "codec_versions", lambda: newer)
    assert tag() != before


def test_answers_vary_by_the_key_where_keys_are_needed(tmp_path: object) -> None:
    settings = Settings(cache_control="private, max-age=60", api_keys_file=f"{tmp_path}/keys")
    assert caching_headers('"a"', settings) == {
        "Cache-Control": "private, max-age=60",
        "ETag": '"a"',
        "Vary": "Accept, Authorization, X-API-Key",
    }


@pytest.mark.parametrize("text", ["max-age=60\r\nX: y", "Public", "max-age = 60", "a" * 201])
def test_what_is_no_cache_control_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cache_control"):
        Settings(cache_control=text)
