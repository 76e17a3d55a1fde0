"""The methods of the protocol: descriptions of the server and its models, and `ModelInfer`.

Each method reads its message, which the server has not read before.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import Response
from google.protobuf.message import DecodeError

from app.admission import Permit
from app.admission.clients import client_of
from app.admission.semaphore import FairSemaphore
from app.grpc_service.calls import SLOTS, message_of
from app.grpc_service.messages import message_class
from app.http.request import before, departure_of
from app.intake.body import BodyReader
from app.intake.inference import (
    PREFIX,
    Content,
    Document,
    Head,
    InferenceModel,
    InferenceRequest,
    admitted,
    behind_json,
    checked,
    document_of,
    model_named,
)
from app.intake.wanted import ClassifyTensors
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.responses.answers import MANY_LABELS
from app.responses.inference import InferenceStyle, failure_of, output_tensor, reply_parameters
from app.routes.image_route import ImageRoute, permit_of
from app.routes.inference import EXTENSIONS, PLATFORM, answers_of, note
from app.service import missing, service_of
from models.domain.errors import MalformedRequest, ServiceError
from models.networks.served import Model
from models.settings import Settings
from models.version import VERSION

SERVICE = "/inference.GRPCInferenceService/"
"""Begins the paths of all methods."""

OVER_GRPC = ("classification", "parameters")
"""The extensions that gRPC has here, of those that HTTP has."""


PIECE = 1 << 18
"""Bytes of a tensor that are copied out of its message at a time."""

MOST_ENTRIES = 1024
"""Outputs, parameters and lengths of a shape of one request; many would take an event loop long."""


async def server_live(_request: Request) -> Response:
    """Answer while the event loop runs."""
    return _answer("ServerLive", live=True)


async def server_ready(request: Request) -> Response:
    """Say whether the server is not stopping and its worker works."""
    return _answer("ServerReady", ready=service_of(request).ready)


async def server_metadata(_request: Request) -> Response:
    """Name the server, its version, and the extensions that it supports."""
    extensions = [each for each in EXTENSIONS if each in OVER_GRPC]
    return _answer("ServerMetadata", name="darkroom", version=VERSION, extensions=extensions)


async def model_ready(request: Request) -> Response:
    """Say whether a model has weights and the server is ready; raises NotFound."""
    found = await _model(request, "ModelReady")
    has_weights = found.served.model is not None
    return _answer("ModelReady", ready=has_weights and service_of(request).ready)


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
        found = await answers_of(service, permit, asked, began, departure_of(request.scope))
    except ServiceError:
        note(service, model, began, [], failed=True)
        raise
    failure = failure_of(asked, found)
    note(service, model, began, found, failed=failure is not None)
    if failure is not None:
        raise failure
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
            images = await _collected(given, permit_of(request), service.settings, model)
        except ServiceError:
            note(service, model, began, [], failed=True)
            raise
        return model, weights, images


async def _collected(
    message: Any, permit: Permit, settings: Settings, model: InferenceModel
) -> InferenceRequest:
    """Read a parsed request for a model; `permit` grows by its images. Raises ServiceError."""
    if len(message.inputs) != 1:
        raise MalformedRequest(f"the request has {len(message.inputs)} inputs; send exactly one")
    (given,) = message.inputs
    described = message, given, *message.outputs[:MOST_ENTRIES]
    entries = len(message.outputs) + len(given.shape)
    if entries + sum(len(each.parameters) for each in described) > MOST_ENTRIES:
        raise MalformedRequest(
            f"the request has more than {MOST_ENTRIES} outputs, parameters and lengths; send fewer"
        )
    head = checked(_document_of(message), settings, model)
    return admitted(head, await _contents(message, head, settings), permit)


async def _contents(message: Any, head: Head, settings: Settings) -> list[Content]:
    """Return the images of the single input, which stand in raw bytes or in typed fields."""
    (given,), n_raw = message.inputs, len(message.raw_input_contents)
    if n_raw > 1:
        raise MalformedRequest("raw_input_contents has more tensors than the one input")
    if n_raw and given.HasField("contents"):
        raise MalformedRequest(f"the input {given.name} has its data in two places")
    if n_raw:
        tensor: Sequence[bytes] = message.raw_input_contents
    elif isinstance(head.wanted, ClassifyTensors):
        tensor = [await asyncio.to_thread(_numbers, given.contents, head.n, head.wanted)]
    else:
        tensor = _elements(given.contents.bytes_contents, head.n)
    size = sum(map(len, tensor))
    head.check_size(size)
    return await behind_json(BodyReader(_pieces(tensor)), size, head, settings)


def _elements(given: Sequence[bytes], n: int) -> list[bytes]:
    """Return files as they stand in a raw tensor, each behind its length."""
    if len(given) != n:
        raise MalformedRequest(f"bytes_contents has {len(given)} elements, the shape {n}")
    return [part for each in given for part in (len(each).to_bytes(PREFIX, "little"), each)]


def _numbers(contents: Any, n: int, wanted: ClassifyTensors) -> bytes:
    """Return typed values as the bytes of their tensor."""
    preprocessed = wanted.operation.preprocessed
    name = "fp32_contents" if preprocessed else "uint_contents"
    given = getattr(contents, name)
    n_values = n * wanted.height * wanted.width * 3
    if len(given) != n_values:
        raise MalformedRequest(
            f"{name} has {len(given)} values and the shape {n_values}; or send the tensor in "
            "raw_input_contents"
        )
    if preprocessed:
        return np.fromiter(given, np.float32, len(given)).tobytes()
    values = np.fromiter(given, np.uint32, len(given))
    if values.max() > 255:
        raise MalformedRequest("the values of a UINT8 tensor are 0 to 255")
    return values.astype(np.uint8).tobytes()


async def _pieces(tensor: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    for part in tensor:
        for start in range(0, len(part), PIECE):
            yield part[start : start + PIECE]


def _document_of(message: Any) -> Document:
    """Return a message as the document of the same request in JSON."""
    inputs = [
        {
            "name": each.name,
            "shape": [*each.shape],
            "datatype": each.datatype,
            "parameters": _parameters_of(each.parameters),
        }
        for each in message.inputs
    ]
    outputs = [
        {"name": each.name, "parameters": _parameters_of(each.parameters)}
        for each in message.outputs
    ]
    return document_of(
        {
            "inputs": inputs,
            "outputs": outputs,
            "id": message.id,
            "parameters": _parameters_of(message.parameters),
        }
    )


def _parameters_of(given: Mapping[str, Any]) -> dict[str, object]:
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in given.items()}
    return {name: getattr(given[name], kind) for name, kind in chosen.items() if kind}


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
