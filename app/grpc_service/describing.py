"""What the protocol says about the server and its models over gRPC; nothing is computed."""

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from google.protobuf.message import DecodeError

from app.admission.clients import client_of
from app.admission.fair_semaphore import FairSemaphore
from app.grpc_service.infer import SERVICE
from app.grpc_service.messages import message_class
from app.grpc_service.scope import SLOTS, message_of
from app.intake.inference.models import InferenceModel, model_named
from app.routes.inference.models import EXTENSIONS, PLATFORM, is_ready
from app.service import service_of
from models.domain.errors import MalformedRequest
from models.version import VERSION

LARGEST = 1 << 14
"""Bytes of the message of one of these methods."""

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
"""What answers each method, by its path."""


async def _model(request: Request, method: str) -> InferenceModel:
    """Read the message of a method and return the model that it names."""
    slots: FairSemaphore = request.scope[SLOTS]
    async with slots.hold(client_of(request.scope)):
        body = await message_of(request)
    try:
        if len(body) > LARGEST:
            raise DecodeError
        given = message_class(f"inference.{method}Request").FromString(body)
    except DecodeError:
        raise MalformedRequest(f"the message is not a valid {method}Request") from None
    networks = service_of(request).computing().networks
    return model_named(networks, given.name, given.version or None)


def _answer(method: str, **fields: Any) -> Response:
    return Response(message_class(f"inference.{method}Response")(**fields).SerializeToString())
