"""The endpoints that take images, and the steps that they share.

`handle` has the steps of a request, from its headers to its answer. Each endpoint adds the
work on an image that the options ask for, and the form in which the request is answered.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.admission import Permit, StreamPermits
from app.archives.image_names import ImageNames
from app.http.negotiation import (
    EVENTS,
    IMAGE,
    JSON,
    JSON_LINES,
    MULTIPART,
    STREAMS,
    ZIP,
    Accept,
    names,
    parse,
)
from app.http.problems import read
from app.http.request import (
    STREAM,
    StreamWindow,
    before,
    content_type,
    header,
    seconds_of,
)
from app.intake.item import Item, Url, check_count
from app.intake.json_items import in_parsing_thread
from app.intake.presets import NO_PRESETS, Presets
from app.intake.request_items import PICTURES, collect, options_of
from app.intake.spool import Blob, digest_of
from app.intake.stream import ImageStream, is_stream
from app.intake.wanted import (
    ImageRequest,
    Parts,
    Version,
    Wanted,
    chain_of,
    images_of_each,
    model_of,
    output_format,
    version_of,
    versions_of,
)
from app.pipeline.outcomes import Timings, server_timing
from app.responses.answers import Rendering, StreamedBody, json_lines, streamed, whole_reply
from app.responses.records import VectorStyle
from app.routes.image_route import ImageRoute
from app.routes.network_choice import classification
from app.routes.openapi import IMAGES, LABELS, OF_IMAGES, PARTS, image_document
from app.service import Service, service_in
from models.api.schemas import (
    ClassifyOptions,
    FilterOptions,
    InfoOptions,
    MatchOptions,
    ProcessOptions,
)
from models.codec import ENCODABLE
from models.codec.encoder import codec_versions
from models.domain.errors import (
    InvalidParameter,
    NotAcceptable,
    WeightsMissing,
)
from models.plugins import plugins
from models.settings import Settings
from models.version import VERSION
from workers.filters.base import SPEC_VERSION
from workers.operations import Classify

WantedOf = Callable[[Mapping[str, Any], Accept, Service], Wanted]
"""Map the options of a request and its Accept header to the work that is wanted of a service."""

FormOf = Callable[[Accept, bool], str]
"""Map the Accept header, and whether there is a single image, to the form of the response."""

LONG, MANY = 1 << 13, 8
"""Characters of a text, and members of a list, beyond which an option is read on a thread. To read
64 chains of 32 filters takes 10 ms, and 12 ms more where they are the text of a form."""

TAG_DIGITS = 32
"""Hexadecimal digits of an entity tag: 128 bits of a SHA-256."""

router = APIRouter(tags=["images"], route_class=ImageRoute, responses=OF_IMAGES)


@router.post(
    "/classify",
    operation_id="classify",
    responses=LABELS,
    openapi_extra=image_document(ClassifyOptions),
)
async def classify(request: Request) -> Response:
    """Labels for 1…N images: raw body, multipart/form-data or JSON; uploads, data URIs, URLs."""
    return await handle(
        request, classify_wanted, _one_of((JSON, *JSON_LINES, EVENTS), "/classify answers")
    )


def classify_wanted(given: Mapping[str, Any], _accept: Accept, service: Service) -> Classify:
    """Return the output of a network that is asked for; raises WeightsMissing without a model."""
    wanted = classification(read(ClassifyOptions, given), service.computing().networks)
    if isinstance(wanted, WeightsMissing):
        raise wanted
    return wanted


@router.post(
    "/filter",
    operation_id="filter",
    response_class=Response,
    responses=IMAGES,
    openapi_extra=image_document(FilterOptions),
)
async def filter_images(request: Request) -> Response:
    """1…N images through a chain of filters: one image back as bytes, several as a ZIP."""
    return await handle(request, filter_wanted, _form_of_filtered)


def filter_wanted(given: Mapping[str, Any], accept: Accept, service: Service) -> Version:
    """Return the filters and the output that the options and Accept ask for."""
    options = read(FilterOptions, service.presets.expanded(given))
    return version_of(chain_of(options), options, output_format(accept, strict=True))


def _form_of_filtered(accept: Accept, single: bool) -> str:
    """Return the form of the response: a single image is its bytes unless Accept names a stream."""
    if not single:
        several = (ZIP, MULTIPART, *JSON_LINES, EVENTS)
        return _negotiated(accept, several, "several images are answered as")
    named = [kind for kind in STREAMS if accept.names(kind)]
    liked = accept.best([*named, *(each.media_type for each in ENCODABLE)])
    return liked if liked in named else IMAGE


@router.post(
    "/info", operation_id="info", responses=LABELS, openapi_extra=image_document(InfoOptions)
)
async def info(request: Request) -> Response:
    """Format, size, orientation, EXIF, colour profile, colours and hashes of 1…N images."""
    form_of = _one_of((JSON, *JSON_LINES, EVENTS), "/info answers")
    return await handle(request, lambda given, *_: read(InfoOptions, given), form_of)


@router.post(
    "/match", operation_id="match", responses=LABELS, openapi_extra=image_document(MatchOptions)
)
async def match(request: Request) -> Response:
    """The best places of a small picture, `template`, in 1…N images, all files of a form."""
    form_of = _one_of((JSON, *JSON_LINES, EVENTS), "/match answers")
    return await handle(request, lambda given, *_: read(MatchOptions, given), form_of)


@router.post(
    "/process",
    operation_id="process",
    responses=PARTS,
    openapi_extra=image_document(ProcessOptions),
)
async def process(request: Request) -> Response:
    """Labels and any number of filtered versions of 1…N images, each decoded once.

    Each of `versions` is what POST /filter takes. Labels and versions fail alone: a record is then
    "partial". At the door and in the limit of a request each of them counts as one image.
    """
    return await handle(request, process_wanted, _one_of((JSON, *STREAMS), "/process answers"))


def process_wanted(given: Mapping[str, Any], accept: Accept, service: Service) -> Parts:
    """Return the parts that the options ask for; raises InvalidParameter.

    Without weights only the labels fail, unless nothing else is wanted.
    """
    options = read(ProcessOptions, given)
    labels = classification(options, service.computing().networks) if options.labels else None
    wanted = Parts(labels, versions_of(options, accept, service.presets.expanded))
    if not wanted.n_parts:
        raise InvalidParameter.of("versions", "without labels at least one version is needed")
    if isinstance(labels, WeightsMissing) and not wanted.versions:
        raise labels
    return wanted


async def handle(request: Request, wanted_of: WantedOf, form_of: FormOf) -> Response:
    """Answer an admitted request; everything about it is decided before its work starts.

    An Accept header that is too long is refused before the body is read.
    """
    accept = parse(header(request.scope, b"accept"))
    if is_stream(content_type(request.scope)):
        return await _stream(request, wanted_of, accept)
    service, timings = service_in(request.scope), Timings()
    permit: Permit = request.scope["permit"]
    settings = service.settings
    with timings.measure("intake"):
        items, options = await before(permit.deadline, collect(request, permit, settings))
        for name in PICTURES:
            if isinstance(picture := options.get(name), Blob):
                opened = service.pipeline.picture(picture, permit)
                options[name] = await before(permit.deadline, opened)
    if service.pipeline.spans is not None:
        service.pipeline.spans.stages(timings)
    n_items = len(items)
    decide = partial(wanted_of, options, accept, service)
    if are_long(options):
        wanted = await before(permit.deadline, in_parsing_thread(decide))
    else:
        wanted = decide()
    asked = ImageRequest(items, wanted)
    if (parts := images_of_each(wanted)) > 1:
        check_count(n_items, settings, parts)
        permit.grow(n_items * (parts - 1), 0)  # each part counts as an image
    permit.expect(n_items)
    form = form_of(accept, n_items == 1)
    rendering = _rendering(request, asked, service, timings, options, form)
    if form not in (JSON, IMAGE):  # streams have no tags, because they may end with errors
        return streamed(service.pipeline.answers(asked, permit), form, rendering)
    if settings.cache_control or header(request.scope, b"if-none-match") is not None:
        asked, rendering, unchanged = await tagged(
            request, asked, rendering, service, permit, options
        )
        if unchanged is not None:
            return unchanged
    return await whole_reply(await service.pipeline.whole(asked, permit), form, rendering)


async def _stream(request: Request, wanted_of: WantedOf, accept: Accept) -> Response:
    """Return a response that reads the images of a body of any length while it sends their records.

    Each image has its own permit, deadline and record, and as many are under way as a request may
    have. Errors of the options are errors of the request, errors of an image are its own.
    """
    service = service_in(request.scope)
    settings = service.settings
    form = _negotiated(accept, JSON_LINES, "a stream is answered as")
    options = options_of(request, [])
    decide = partial(wanted_of, options, accept, service)
    wanted = await in_parsing_thread(decide) if are_long(options) else decide()
    parts = images_of_each(wanted)
    check_count(1, settings, parts)
    most = settings.max_images_per_request
    window = request.scope[STREAM] = StreamWindow(most // parts)  # each part counts as an image
    permit, seconds = request.scope["permit"], seconds_of(request.scope, settings)
    permits = StreamPermits(service.admission, permit.client, seconds, parts, permit.lane)
    stream = ImageStream(request, permits, window, settings)
    await stream.begin()
    asked = ImageRequest((), wanted)
    rendering = _rendering(request, asked, service, Timings(), options, form)
    answers = service.pipeline.stream(stream.items(), wanted, window)
    return StreamedBody(json_lines(answers, rendering), rendering.headers, form, source=answers)


def _rendering(
    request: Request,
    asked: ImageRequest,
    service: Service,
    timings: Timings,
    options: Mapping[str, Any],
    form: str,
) -> Rendering:
    """Return the values with which the answers of a request are rendered."""
    model = model_of(asked.wanted, service.computing().networks)
    headers, named = dict[str, str](), "model" in options
    if isinstance(asked.wanted, Version | Parts):  # images depend on the filters and on Accept
        headers = {"X-Filter-Spec": str(SPEC_VERSION), "Vary": "Accept"}
    if model is not None:
        headers["X-Model"] = model.headers[named]
    members: list[str] = []
    if form in (ZIP, MULTIPART):
        in_archive = ImageNames()
        members = [in_archive.next(each.index, each.source, each.id) for each in asked.items]
    vectors = VectorStyle.of(options)
    return Rendering(request.scope, headers, timings, model, named, vectors, names=members)


def are_long(options: Mapping[str, Any]) -> bool:
    """Return whether an option takes so long to read that a thread does it."""
    return any(
        len(each) > MANY or any(map(_has_long_text, each))
        if isinstance(each, list)
        else _has_long_text(each)
        for each in options.values()
    )


def _has_long_text(value: object) -> bool:
    texts = value.values() if isinstance(value, Mapping) else (value,)
    return any(isinstance(each, str) and len(each) > LONG for each in texts)


def _one_of(offers: tuple[str, ...], refusal: str) -> FormOf:
    """Return a function that chooses the form that Accept likes best, for any number of images."""
    return lambda accept, _single: _negotiated(accept, offers, refusal)


def _negotiated(accept: Accept, offers: tuple[str, ...], refusal: str) -> str:
    """Return the offer that Accept likes best; raises NotAcceptable that begins with `refusal`."""
    liked = accept.best(offers)
    if liked is None:
        raise NotAcceptable(f"{refusal} {', '.join(offers)}")
    return liked


# Entity tags of answers, and the answer 304 to a client that has the answer already. A tag is made
# of everything that an answer depends on, so it is known before the work starts: the contents of
# the images, the options, the weights, and the versions of all definitions and codecs. Requests are
# POST, because they carry images, but they change nothing; 304 is the answer to such a GET. All
# tags are weak (RFC 9110, section 8.8.1): `timing` differs each time, and scores may differ a
# little.


def caching_headers(etag: str, settings: Settings) -> dict[str, str]:
    """Return the headers about caching that a good answer has; errors have none."""
    vary = "Accept, Authorization, X-API-Key" if settings.api_keys_file else "Accept"
    control = {"Cache-Control": settings.cache_control} if settings.cache_control else {}
    return {**control, "ETag": etag, "Vary": vary}


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
    if any(isinstance(each.content, Url) for each in asked.items):
        with rendering.intake.measure("fetch"):
            items = await service.pipeline.fetched(asked.items, permit)
        asked = replace(asked, items=items)
    digests = await before(permit.deadline, _digests(asked.items))
    if digests is None:
        return asked, rendering, None
    etag = entity_tag(digests, _described(request, asked, rendering, options, service.presets))
    headers = caching_headers(etag, service.settings)
    if names(request.headers.get("if-none-match", ""), etag):
        return asked, rendering, _not_modified(asked, rendering, headers, service)
    return asked, replace(rendering, good_headers=headers), None


def entity_tag(digests: list[bytes], described: object) -> str:
    """Return a tag of these contents and of a description that JSON can carry."""
    text = json.dumps(described, sort_keys=True, default=_text_of).encode()
    digest = hashlib.sha256(text, usedforsecurity=False)
    for each in digests:
        digest.update(each)
    return f'W/"{digest.hexdigest()[:TAG_DIGITS]}"'


def _text_of(value: object) -> str:
    """Return the text of a value, or the digest of a picture: its text would take 50 ms."""
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else str(value)


async def _digests(items: tuple[Item, ...]) -> list[bytes] | None:
    """Return the digests of all contents, or None if a content is an error."""
    contents = [item.content for item in items if isinstance(item.content, Blob)]
    if len(contents) < len(items):
        return None
    return [await digest_of(each) for each in contents]


def _described(
    request: Request,
    asked: ImageRequest,
    rendering: Rendering,
    options: Mapping[str, Any],
    presets: Presets = NO_PRESETS,
) -> object:
    """Return everything beside the contents that the bytes of an answer depend on."""
    return {
        "version": VERSION,
        "filters": [SPEC_VERSION, *(package for package, _, _ in plugins())],
        "codecs": codec_versions(),
        "model": rendering.model and rendering.model.json[rendering.chosen].decode(),
        "path": request.url.path,
        "accept": request.headers.get("accept"),
        "options": options,
        "presets": presets.digest,
        "items": [(item.id, item.source) for item in asked.items],
    }


def _not_modified(
    asked: ImageRequest, rendering: Rendering, headers: Mapping[str, str], service: Service
) -> Response:
    for item in asked.items:
        if isinstance(item.content, Blob):
            item.content.close()
    service.metrics.not_modified.inc(len(asked.items))
    timing = {"Server-Timing": server_timing([rendering.intake])}
    return Response(status_code=304, headers={**rendering.headers, **headers, **timing})
