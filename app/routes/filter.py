"""`POST /filter`: one or many images through a chain of filters."""

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http import media_types, negotiation
from app.http.options import read_with_encoding
from app.http.request_lifetime import before
from app.intake.filter_options import chain_of, encoded_there, encoding_of, format_for
from app.intake.request_items import collect
from app.intake.wanted import Output
from app.pipeline.timings import Timings
from app.responses import complete, streams
from app.responses.records import record
from app.routes.image_route import ImageRoute, permit_of
from app.routes.openapi import IMAGES, filter_document
from app.service import service_of
from models.api.schemas import FilterOptions
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import NotAcceptable

router = APIRouter(tags=["images"], route_class=ImageRoute)

_SEVERAL = (media_types.ZIP, media_types.MULTIPART, *media_types.JSON_LINES, media_types.EVENTS)


@router.post(
    "/filter",
    operation_id="filter",
    response_class=Response,
    responses=IMAGES,
    openapi_extra=filter_document(),
)
async def filter_images(request: Request) -> Response:
    """1…N images through a chain of filters: one image back as bytes, several as a ZIP."""
    service, permit = service_of(request), permit_of(request)
    reading = Timings()
    with reading.measure("intake"):
        intake = await before(permit.deadline, collect(request, permit, service.settings))
    options, asked = read_with_encoding(FilterOptions, intake.options)
    encoding = encoding_of(asked)
    operation = encoded_there(chain_of(options), encoding, asked.format)
    header = request.headers.get("accept")
    output = Output(partial(_format, asked.format, header), encoding)
    permit.expect(len(intake.items), operation.batch_key)
    works = [
        partial(service.pipeline.filter, item, operation, output, permit) for item in intake.items
    ]
    shape = _shape(intake.single, header)
    if shape is None:
        return await complete.image(request, works[0], reading)
    return streams.streamed(
        request, works, shape, partial(record, request=request), complete.filter_headers()
    )


def _shape(single: bool, header: str | None) -> str | None:
    """How the answer leaves: None is the bytes of one image."""
    if single:
        named = [kind for kind in media_types.STREAMS if negotiation.names(header, kind)]
        liked = negotiation.best(header, [*named, *(each.media_type for each in ENCODABLE)])
        return liked if liked in named else None
    chosen = negotiation.best(header, _SEVERAL)
    if chosen is None:
        raise NotAcceptable(f"several images are answered as {', '.join(_SEVERAL)}")
    return chosen


def _format(asked: str | None, header: str | None, source: ImageFormat) -> ImageFormat:
    """As everywhere, but what Accept does not allow is an error."""
    chosen = format_for(asked, header, source)
    acceptable = negotiation.best(header, [chosen.media_type]) or _several_only(header)
    if asked is None and not acceptable:
        raise NotAcceptable(f"images are encoded as {', '.join(f.media_type for f in ENCODABLE)}")
    return chosen


def _several_only(header: str | None) -> bool:
    """Accept speaks of the container (a ZIP, JSON Lines), not of the images in it."""
    return any(negotiation.names(header, kind) for kind in media_types.STREAMS)
