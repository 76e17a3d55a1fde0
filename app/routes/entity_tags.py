"""Entity tags of answers with images, and the answer 304 to a client that has one already.

A tag is made of everything that an answer depends on, so it is known before the work starts: the
contents of the images, the options, the weights, and the versions of all definitions and codecs.
Requests are POST, because they carry images, but they change nothing; 304 is what GET would be
answered with.

A tag is weak (RFC 9110, section 8.8.1) unless the bytes of the answer are the same each time.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from app.admission import Permit
from app.http.negotiation import IMAGE, JSON, names
from app.http.request import ClientLeft, before, header
from app.intake.item import Item
from app.intake.spool import Blob, digest_of
from app.intake.wanted import ImageRequest, Parts, Version
from app.pipeline.decoding import MAGIC
from app.pipeline.results.timings import server_timing
from app.responses.answers import Rendering
from app.service import Service
from models.codec import ImageFormat, identify
from models.codec.encoder import codec_versions
from models.settings import Settings
from models.version import VERSION
from workers.filters.base import SPEC_VERSION

DIGITS = 32
"""Hexadecimal digits of a tag: 128 bits of a SHA-256."""


def caching_headers(form: str, settings: Settings) -> dict[str, str]:
    """Return the headers about caching that a good answer of this form has; errors have none."""
    if form not in (JSON, IMAGE) or not settings.cache_control:
        return {}
    return {"Cache-Control": settings.cache_control, "Vary": _vary(settings)}


def wants_tag(request: Request, form: str, settings: Settings) -> bool:
    """Return whether the answer gets a tag: streams have none, because they may end with errors."""
    if form not in (JSON, IMAGE):
        return False
    asks = header(request.scope, b"if-none-match") is not None
    return bool(settings.cache_control) or asks


async def tagged(
    request: Request,
    asked: ImageRequest,
    rendering: Rendering,
    service: Service,
    permit: Permit,
    options: Mapping[str, Any],
    form: str,
) -> tuple[ImageRequest, Rendering, Response | None]:
    """Return the request and its rendering with a tag, or the answer 304 as the third value.

    URLs are fetched here, because the tag needs the contents. A request with an image that cannot
    be had gets no tag.
    """
    if asked.has_urls:
        left = ClientLeft(request)
        with rendering.intake.measure("fetch"):
            items = await service.pipeline.fetched(asked.items, permit, left)
        asked = replace(asked, items=items)
    digests = await before(permit.deadline, _digests(asked.items))
    if digests is None:
        return asked, rendering, None
    weak = form == JSON or not same_bytes(asked, on_gpu=service.backend.load().on_gpu)
    etag = entity_tag(digests, _described(request, asked, rendering, options), weak=weak)
    headers = {**rendering.good_headers, "ETag": etag, "Vary": _vary(service.settings)}
    if names(request.headers.get("if-none-match", ""), etag):
        return asked, rendering, _not_modified(asked, rendering, headers, service)
    return asked, replace(rendering, good_headers=headers), None


def same_bytes(asked: ImageRequest, *, on_gpu: bool) -> bool:
    """Return whether an answer of one image has the same bytes each time.

    Three things depend on the device: files that GPUs encode, filters with a tolerance, and the
    pixels of JPEGs whose Huffman data is damaged, which shows only when they are decoded.
    """
    wanted = asked.wanted
    versions = wanted.versions if isinstance(wanted, Parts) else (wanted,)
    for each in versions:
        if not isinstance(each, Version) or each.output.encoding.encoder == "gpu":
            return False
        if any(filter_.device_tolerance for filter_ in each.operation.filters):
            return False
    return not (on_gpu and any(_is_jpeg(item.content) for item in asked.items))


def _is_jpeg(content: object) -> bool:
    return isinstance(content, Blob) and identify(content.start(MAGIC)) is ImageFormat.JPEG


def entity_tag(digests: list[bytes], described: object, *, weak: bool) -> str:
    """Return a tag of these contents and of a description that JSON can carry."""
    text = json.dumps(described, sort_keys=True, default=str).encode()
    digest = hashlib.sha256(text, usedforsecurity=False)
    for each in digests:
        digest.update(each)
    return f'{"W/" if weak else ""}"{digest.hexdigest()[:DIGITS]}"'


async def _digests(items: tuple[Item, ...]) -> list[bytes] | None:
    """Return the digests of all contents, or None if one of them is an error."""
    contents = [item.content for item in items if isinstance(item.content, Blob)]
    if len(contents) < len(items):
        return None
    return [await digest_of(each) for each in contents]


def _described(
    request: Request, asked: ImageRequest, rendering: Rendering, options: Mapping[str, Any]
) -> object:
    """Return everything beside the contents that the bytes of an answer depend on."""
    return {
        "version": VERSION,
        "filters": SPEC_VERSION,
        "codecs": codec_versions(),
        "model": rendering.model and rendering.model.model_dump(),
        "path": request.url.path,
        "accept": request.headers.get("accept"),
        "options": options,
        "items": [(item.id, item.source) for item in asked.items],
    }


def _vary(settings: Settings) -> str:
    return "Accept, Authorization, X-API-Key" if settings.api_keys_file else "Accept"


def _not_modified(
    asked: ImageRequest, rendering: Rendering, headers: Mapping[str, str], service: Service
) -> Response:
    for item in asked.items:
        if isinstance(item.content, Blob):
            item.content.close()
    service.metrics.not_modified.inc(len(asked.items))
    timing = {"Server-Timing": server_timing([rendering.intake])}
    return Response(status_code=304, headers={**rendering.headers, **headers, **timing})
