"""`ModelInfer`: the output of a network for a batch of images."""

import asyncio
import time

from fastapi import Request
from fastapi.responses import Response

from app.admission.clients import client_of
from app.grpc_service.message_slots import MessageSlots
from app.grpc_service.reply import written
from app.grpc_service.request import Parsed, collect, parsed
from app.grpc_service.scope import SLOTS, refused
from app.grpc_service.status import Refusal
from app.http.departure import ClientLeft
from app.http.request_lifetime import before
from app.intake.inference.models import InferenceModel, model_named
from app.pipeline.results.timings import Timings
from app.responses.complete import MANY_LABELS
from app.responses.inference.inference_reply import failure_of
from app.routes.images.image_route import ImageRoute, permit_of
from app.routes.inference.answering import answers_of, note, style_of
from app.service import missing, service_of
from models.domain.errors import ServiceError
from models.networks.served import Model


async def infer(request: Request) -> Response:
    """Answer an admitted call, whose message has not been read."""
    service, began, timings = service_of(request), time.monotonic(), Timings()
    with timings.measure("intake"):
        given = parsed(await before(permit_of(request).deadline, _message(request)))
    networks = service.computing().networks
    model = model_named(networks, given.message.model_name, given.message.model_version or None)
    if model.served.model is None:
        raise missing(model.served)
    try:
        return await _answered(request, model, model.served.model, given, timings, began)
    except ServiceError:
        note(service, model, began, [], failed=True)
        raise


async def _message(request: Request) -> bytes:
    """Read the message, which has a slot while it arrives."""
    slots: MessageSlots = request.scope[SLOTS]
    async with slots.taken(client_of(request.scope)):
        return await request.body()


async def _answered(
    request: Request,
    model: InferenceModel,
    weights: Model,
    given: Parsed,
    timings: Timings,
    began: float,
) -> Response:
    """Answer a call for a model that has weights; it `began` at this moment."""
    service, permit = service_of(request), permit_of(request)
    with timings.measure("intake"):
        reading = collect(given, permit, service.settings, model)
        asked = await before(permit.deadline, reading)
    if service.pipeline.spans is not None:
        service.pipeline.spans.stages(timings)
    found = await answers_of(service, permit, asked, began, ClientLeft(request))
    failure = None if asked.takes_errors else failure_of(found)
    note(service, model, began, found, failed=failure is not None)
    if failure is not None:
        worst, text = failure
        return refused(request.scope, Refusal.of(worst, text), worst.status)
    style = style_of(model, weights, asked, timings, "")
    if len(found) * style.width > MANY_LABELS:
        return Response(await asyncio.to_thread(written, found, style))
    return Response(written(found, style))


SERVICE = "/inference.GRPCInferenceService/"
"""Begins the paths of all methods."""

ROUTE = ImageRoute(SERVICE + "ModelInfer", infer, methods=["POST"])
"""The route of the method, which admits each call before its message is read."""
