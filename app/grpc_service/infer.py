"""`ModelInfer`: the output of a network for a batch of images."""

import asyncio
import time
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from app.admission.clients import client_of
from app.admission.fair_semaphore import FairSemaphore
from app.grpc_service.reply import written
from app.grpc_service.request import collect, parsed
from app.grpc_service.scope import SLOTS, message_of, refused
from app.grpc_service.status import Refusal
from app.http.departure import ClientLeft
from app.http.request_lifetime import before
from app.intake.inference.inference_request import InferenceRequest
from app.intake.inference.models import InferenceModel, model_named
from app.pipeline.results.timings import Timings
from app.responses.complete import MANY_LABELS
from app.responses.inference.inference_reply import failure_of
from app.routes.images.image_route import ImageRoute, permit_of
from app.routes.inference.answering import answers_of, note, style_of
from app.service import missing, service_of
from models.domain.errors import ServiceError
from models.networks.served import Model


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a call asks for: its images, and the model that has these weights."""

    model: InferenceModel
    weights: Model
    images: InferenceRequest


async def infer(request: Request) -> Response:
    """Answer an admitted call, whose message has not been read."""
    service, began, timings = service_of(request), time.monotonic(), Timings()
    with timings.measure("intake"):
        asked = await before(permit_of(request).deadline, _read(request, began))
    try:
        return await _answered(request, asked, timings, began)
    except ServiceError:
        note(service, asked.model, began, [], failed=True)
        raise


async def _read(request: Request, began: float) -> _Asked:
    """Read the message, which has a slot until its images are in spools and it is let go."""
    slots: FairSemaphore = request.scope[SLOTS]
    service = service_of(request)
    async with slots.hold(client_of(request.scope)):
        given = parsed(await message_of(request))
        named, version = given.message.model_name, given.message.model_version or None
        model = model_named(service.computing().networks, named, version)
        weights = model.served.model
        if weights is None:
            raise missing(model.served)
        try:
            images = await collect(given, permit_of(request), service.settings, model)
        except ServiceError:
            note(service, model, began, [], failed=True)
            raise
        return _Asked(model, weights, images)


async def _answered(request: Request, given: _Asked, timings: Timings, began: float) -> Response:
    """Answer a call for a model that has weights; it `began` at this moment."""
    service, permit = service_of(request), permit_of(request)
    model, asked = given.model, given.images
    if service.pipeline.spans is not None:
        service.pipeline.spans.stages(timings)
    found = await answers_of(service, permit, asked, began, ClientLeft(request))
    failure = None if asked.takes_errors else failure_of(found)
    note(service, model, began, found, failed=failure is not None)
    if failure is not None:
        worst, text = failure
        return refused(request.scope, Refusal.of(worst, text), worst.status)
    style = style_of(model, given.weights, asked, timings, "")
    if len(found) * style.width > MANY_LABELS:
        return Response(await asyncio.to_thread(written, found, style))
    return Response(written(found, style))


SERVICE = "/inference.GRPCInferenceService/"
"""Begins the paths of all methods."""

ROUTE = ImageRoute(SERVICE + "ModelInfer", infer, methods=["POST"])
"""The route of the method, which admits each call before its message is read."""
