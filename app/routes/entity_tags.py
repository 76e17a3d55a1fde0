"""Entity tags of answers with images, and the answer 304 to a client that has the answer already.

A tag is made of everything that an answer depends on, so it is known before the work starts: the
contents of the images, the options, the weights, and the versions of all definitions and codecs.
Requests are POST, because they carry images, but they change nothing; 304 is the
answer to such a GET.

All tags are weak (RFC 9110, section 8.8.1): `timing` differs each time, and scores and files that a
GPU encodes may differ a little.
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
from app.http.request import before, header
from app.intake.item import Item
from app.intake.spool import Blob, digest_of
from app.intake.wanted import ImageRequest
from app.pipeline.results.timings import server_timing
from app.responses.answers import Rendering
from app.service import Service
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
) -> tuple[ImageRequest, Rendering, Response | None]:
    """Return the request and its rendering with a tag, or the answer 304 as the third value.

    URLs are fetched here, because the tag needs the contents. A request with an image that cannot
    be had gets no tag.
    """
    if asked.has_urls:
        with rendering.intake.measure("fetch"):
            items = await service.pipeline.fetched(asked.items, permit)
        asked = replace(asked, items=items)
    digests = await before(permit.deadline, _digests(asked.items))
    if digests is None:
        return asked, rendering, None
    etag = entity_tag(digests, _described(request, asked, rendering, options))
    headers = {**rendering.good_headers, "ETag": etag, "Vary": _vary(service.settings)}
    if names(request.headers.get("if-none-match", ""), etag):
        return asked, rendering, _not_modified(asked, rendering, headers, service)
    return asked, replace(rendering, good_headers=headers), None


def entity_tag(digests: list[bytes], described: object) -> str:
    """Return a tag of these contents and of a description that JSON can carry."""
    text = json.dumps(described, sort_keys=True, default=str).encode()
    digest = hashlib.sha256(text, usedforsecurity=False)
    for each in digests:
        digest.update(each)
    return f'W/"{digest.hexdigest()[:DIGITS]}"'


async def _digests(items: tuple[Item, ...]) -> list[bytes] | None:
    """Return the digests of all contents, or None if a content is an error."""
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
        "model": rendering.model and rendering.model.json[rendering.chosen].decode(),
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
