"""The methods of the protocol: what the server and its models are, and `ModelInfer`."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from google.protobuf.message import DecodeError

from app.admission.clients import client_of
from app.admission.semaphore import FairSemaphore
from app.grpc_service.calls import SLOTS, Refusal, message_of, refused
from app.grpc_service.messages import message_class
from app.grpc_service.request import collect
from app.http.request import ClientLeft, before
from app.intake.inference import InferenceModel, InferenceRequest, model_named
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.responses.answers import MANY_LABELS
from app.responses.inference import InferenceStyle, failure_of, output_tensor, reply_parameters
from app.routes.image_route import ImageRoute, permit_of
from app.routes.inference import EXTENSIONS, PLATFORM, answers_of, is_ready, note
from app.service import missing, service_of
from models.domain.errors import MalformedRequest, ServiceError
from models.networks.served import Model
from models.version import VERSION

SERVICE = "/inference.GRPCInferenceService/"
"""Begins the paths of all methods."""

OVER_GRPC = ("classification", "parameters")
"""The extensions that gRPC has here, of those that HTTP has."""


async def server_live(_request: Request) -> Response:
    """Answer while the event loop runs."""
    return _answer("ServerLive", live=True)


async def server_ready(request: Request) -> Response:
    """Say whether the server is not stopping and its worker works."""
    return _answer("ServerReady", ready=is_ready(service_of(request)))


async def server_metadata(_request: Request) -> Response:
    """Name the server, its version, and the extensions that it supports."""
    extensions = [each for each in EXTENSIONS if each in OVER_GRPC]
    return _answer("ServerMetadata", name="darkroom", version=VERSION, extensions=extensions)


async def model_ready(request: Request) -> Response:
    """Say whether a model has weights and the server is ready; raises NotFound."""
    found = await _model(request, "ModelReady")
    has_weights = found.served.model is not None
    return _answer("ModelReady", ready=has_weights and is_ready(service_of(request)))


async def model_metadata(request: Request) -> Response:
    """Describe the inputs and outputs of a model, and name its version; raises NotFound."""
    found = await _model(request, "ModelMetadata")
    tensors = {
        name: [
            {"name": each.name, "datatype": each.datatype, "shape": each.shape} for each in specs
        ]
        for name, specs in (("inputs", found.inputs), ("outputs", found.outputs))
    }
    versions = [found.version] if found.version else []
    return _answer(
        "ModelMetadata", name=found.name, versions=versions, platform=PLATFORM, **tensors
    )


METHODS = {
    SERVICE + "ServerLive": server_live,
    SERVICE + "ServerReady": server_ready,
    SERVICE + "ServerMetadata": server_metadata,
    SERVICE + "ModelReady": model_ready,
    SERVICE + "ModelMetadata": model_metadata,
}
"""The functions that answer the methods without images, by path."""


async def infer(request: Request) -> Response:
    """Answer an admitted call of `ModelInfer`, whose message has not been read."""
    service, permit, began = service_of(request), permit_of(request), time.monotonic()
    timings = Timings()
    with timings.measure("intake"):
        model, weights, asked = await before(permit.deadline, _read(request, began))
    try:
        if service.pipeline.spans is not None:
            service.pipeline.spans.stages(timings)
        found = await answers_of(service, permit, asked, began, ClientLeft(request))
    except ServiceError:
        note(service, model, began, [], failed=True)
        raise
    failure = None if asked.takes_errors else failure_of(found)
    note(service, model, began, found, failed=failure is not None)
    if failure is not None:
        worst, text = failure
        return refused(request.scope, Refusal.of(worst, text), worst.status)
    style = InferenceStyle(model, weights, asked, timings)
    if len(found) * style.model.width > MANY_LABELS:
        return Response(await asyncio.to_thread(_written, found, style))
    return Response(_written(found, style))


ROUTE = ImageRoute(SERVICE + "ModelInfer", infer, methods=["POST"])
"""The route of `ModelInfer`, which admits each call before its message is read."""


async def _read(request: Request, began: float) -> tuple[InferenceModel, Model, InferenceRequest]:
    """Return the model that a call names, its weights, and the images.

    The message has a slot until its images are in spools and the message is let go.
    """
    slots: FairSemaphore = request.scope[SLOTS]
    service = service_of(request)
    async with slots.hold(client_of(request.scope)):
        given = _parsed("ModelInfer", await message_of(request))
        version = given.model_version or None
        model = model_named(service.computing().networks, given.model_name, version)
        weights = model.served.model
        if weights is None:
            raise missing(model.served)
        try:
            images = await collect(given, permit_of(request), service.settings, model)
        except ServiceError:
            note(service, model, began, [], failed=True)
            raise
        return model, weights, images


async def _model(request: Request, method: str) -> InferenceModel:
    """Read the message of a method and return the model that it names."""
    slots: FairSemaphore = request.scope[SLOTS]
    async with slots.hold(client_of(request.scope)):
        given = _parsed(method, await message_of(request))
    networks = service_of(request).computing().networks
    return model_named(networks, given.name, given.version or None)


def _parsed(method: str, body: bytes) -> Any:
    try:
        return message_class(f"inference.{method}Request").FromString(body)
    except DecodeError:
        raise MalformedRequest(f"the message is not a valid {method}Request") from None


def _answer(method: str, **fields: Any) -> Response:
    return Response(message_class(f"inference.{method}Response")(**fields).SerializeToString())


def _written(answers: Sequence[Answer], style: InferenceStyle) -> bytes:
    """Return the answer of `ModelInfer`: outputs are raw bytes behind their descriptions."""
    reply = message_class("inference.ModelInferResponse")(
        model_name=style.model.name, model_version=style.model.version, id=style.asked.id
    )
    _set(reply.parameters, reply_parameters(answers, style.weights.record))
    for wanted in style.asked.outputs:
        tensor = output_tensor(wanted, answers, style.model.width, style.weights.labels)
        reply.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        reply.raw_output_contents.append(tensor.raw())
    serialized: bytes = reply.SerializeToString()
    return serialized


def _set(parameters: Any, values: Mapping[str, str | bool | int]) -> None:
    for name, value in values.items():
        if isinstance(value, bool):
            parameters[name].bool_param = value
        elif isinstance(value, int):
            parameters[name].int64_param = value
        else:
            parameters[name].string_param = value
