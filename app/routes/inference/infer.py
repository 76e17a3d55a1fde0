"""`POST /v2/models/{model}/infer`: the output of a network for a batch of images."""

import time

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.http.departure import ClientLeft
from app.http.request_lifetime import before
from app.intake.inference.inference_request import collect
from app.intake.inference.models import InferenceModel, model_named
from app.intake.stream import is_stream
from app.pipeline.results.timings import Timings
from app.responses.inference.inference_reply import inference_reply
from app.routes.images.image_route import ImageRoute, permit_of
from app.routes.inference.answering import answers_of, note, style_of
from app.routes.inference.documents import INFERRED, infer_document
from app.service import Service, missing, service_of
from models.domain.errors import ServiceError, UnsupportedMedia
from models.networks.served import Model

router = APIRouter(tags=["inference"], route_class=ImageRoute)


@router.post("/v2/models/{model}/versions/{version}/infer", include_in_schema=False)
@router.post(
    "/v2/models/{model}/infer",
    operation_id="v2_infer",
    responses=INFERRED,
    openapi_extra=infer_document(),
)
async def infer(request: Request) -> Response:
    """Compute the outputs of a model for images: files, samples, or the network's input."""
    service, began = service_of(request), time.monotonic()
    if is_stream(request.headers.get("content-type", "")):
        raise UnsupportedMedia("an inference request is application/json or octets, no stream")
    names = request.path_params
    networks = service.computing().networks
    model = model_named(networks, names["model"], names.get("version"))
    if model.served.model is None:
        raise missing(model.served)
    try:
        return await _answered(request, service, model, model.served.model, began)
    except ServiceError:
        note(service, model, began, [], failed=True)
        raise


async def _answered(
    request: Request, service: Service, model: InferenceModel, weights: Model, began: float
) -> Response:
    """Answer a request for a model that has weights; it `began` at this moment."""
    permit, timings = permit_of(request), Timings()
    with timings.measure("intake"):
        reading = collect(request, permit, service.settings, model)
        asked = await before(permit.deadline, reading)
    if service.pipeline.spans is not None:
        service.pipeline.spans.stages(timings)
    found = await answers_of(service, permit, asked, began, ClientLeft(request))
    accepts = request.headers.get("accept-encoding", "")
    response = await inference_reply(found, style_of(model, weights, asked, timings, accepts))
    note(service, model, began, found, failed=response.status_code != 200)
    return response
