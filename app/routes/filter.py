"""`POST /filter`: one or many images through a chain of filters."""

import json
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import ValidationError

from app import accept, replies
from app.documents import filter_document
from app.intake import Intake, collect
from app.pipeline import Output
from app.problems import invalid
from app.records import record
from app.scope import before, deadline_of
from app.service import Admitted, ServiceOf
from app.stages import Stages
from models.codec import ENCODABLE, ImageFormat
from models.errors import FieldError, InvalidParameter, NotAcceptable
from models.schemas import FilterOptions
from workers.filters import parse_chain, parse_one
from workers.operations import FilterChain

router = APIRouter(tags=["images"])

_SEVERAL = (replies.ZIP, replies.MULTIPART, *replies.JSON_LINES, replies.EVENTS)
_STREAMS = (*replies.JSON_LINES, replies.EVENTS, replies.ZIP, replies.MULTIPART)
_PREFERRED = (ImageFormat.AVIF, ImageFormat.WEBP, ImageFormat.PNG, ImageFormat.JPEG)


@router.post("/filter", openapi_extra=filter_document())
async def filter_images(request: Request, permit: Admitted, service: ServiceOf) -> Response:
    """1…N images through a chain of filters: one image back as bytes, several as a ZIP."""
    deadline = deadline_of(request, service.settings)
    reading = Stages()
    with reading.measure("intake"):
        intake = await before(deadline, collect(request, permit, service.settings))
    options = _options(intake)
    operation = FilterChain(_chain(options))
    header = request.headers.get("accept")
    output = Output(partial(_format, options, header), options.quality)
    works = [
        partial(service.pipeline.filter, item, operation, output, deadline, permit)
        for item in intake.items
    ]
    shape = _shape(intake.single, header)
    present = partial(record, request=request, inline=True)
    if shape is None:
        return await replies.image(request, works[0], reading)
    if shape in replies.JSON_LINES:
        return replies.json_lines(request, works, shape, present, replies.filter_headers())
    if shape == replies.EVENTS:
        return replies.events(request, works, present, replies.filter_headers())
    return (replies.zipped if shape == replies.ZIP else replies.multipart)(request, works)


def _options(intake: Intake) -> FilterOptions:
    try:
        return FilterOptions.model_validate(intake.options)
    except ValidationError as error:
        raise invalid(error) from None


def _chain(options: FilterOptions) -> Any:
    parameters = options.model_extra or {}
    if (options.ops is None) == (options.name is None):
        wrong = FieldError("ops", "exactly one of `ops` and `name` is needed; GET /filters lists")
        raise InvalidParameter(wrong.message, [wrong])
    if options.name is not None:
        return (parse_one(options.name, parameters),)
    if parameters:
        unknown = [
            FieldError(name, "unknown parameter", given) for name, given in parameters.items()
        ]
        raise InvalidParameter(f"unknown parameter {unknown[0].path!r} beside `ops`", unknown)
    return parse_chain(_decoded(options.ops))


def _decoded(ops: object) -> object:
    """`ops` as JSON gives it: a list already, or text in a query or a form."""
    if not isinstance(ops, str):
        return ops
    try:
        return json.loads(ops)
    except ValueError as error:
        raise InvalidParameter("ops: not JSON", [FieldError("ops", str(error), ops)]) from None


def _shape(single: bool, header: str | None) -> str | None:
    """How the answer leaves: None is the bytes of one image."""
    if single:
        named = next((kind for kind in _STREAMS if accept.names(header, kind)), None)
        return named
    chosen = accept.best(header, _SEVERAL)
    if chosen is None:
        raise NotAcceptable(f"several images are answered as {', '.join(_SEVERAL)}")
    return chosen


def _format(options: FilterOptions, header: str | None, source: ImageFormat) -> ImageFormat:
    """`format` wins; else what Accept names, by its q-values; else the source's format."""
    if options.format is not None:
        return ImageFormat("jpeg" if options.format == "jpg" else options.format)
    fallback = source if source in ENCODABLE else ImageFormat.PNG
    if header is None or not any(accept.names(header, f.media_type) for f in ENCODABLE):
        if accept.best(header, [fallback.media_type]) or _several_only(header):
            return fallback
        raise NotAcceptable(f"images are encoded as {', '.join(f.media_type for f in ENCODABLE)}")
    named = [f for f in _PREFERRED if accept.names(header, f.media_type)]
    offers = [f.media_type for f in dict.fromkeys((*named, fallback))]
    chosen = accept.best(header, offers)
    return next(f for f in ENCODABLE if f.media_type == chosen)


def _several_only(header: str | None) -> bool:
    """Accept speaks of the container (a ZIP, JSON Lines), not of the images in it."""
    return any(accept.names(header, kind) for kind in _STREAMS)
