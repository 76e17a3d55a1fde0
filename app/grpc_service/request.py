"""Read a request of ModelInfer: its message, and the images of its one tensor."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from app.admission import Permit
from app.grpc_service.messages import message_class
from app.grpc_service.octets import octets
from app.grpc_service.wire import BYTES, FP32, UINT, taken_apart
from app.grpc_service.wire import Message as Wire
from app.intake.inference import document as documents
from app.intake.inference.body_reader import BodyReader
from app.intake.inference.document import Document, GivenOutput, GivenTensor, Parameters
from app.intake.inference.images import Content, files, of_one_size
from app.intake.inference.inference_request import InferenceRequest, Read, admitted, wanted_of
from app.intake.inference.layout import PREFIX, Layout, check_size, layout_of, values_of
from app.intake.inference.models import InferenceModel
from app.intake.wanted import kinds, known_pixels
from models.domain.errors import MalformedRequest
from models.settings import Settings

PIECE = 1 << 18
"""Bytes of a tensor that are copied out of its message at a time."""

FLOAT = 4
"""Bytes of a number of FP32."""

_ModelInferRequest = message_class("inference.ModelInferRequest")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The message of a request without its tensors, and the parts that it came in."""

    message: Any
    wire: Wire


def parsed(body: bytes) -> Parsed:
    """Return what the bytes of a request hold; raises MalformedRequest."""
    wire = taken_apart(body)
    try:
        return Parsed(_ModelInferRequest.FromString(wire.beside), wire)
    except DecodeError:
        raise MalformedRequest("the message is not a valid ModelInferRequest") from None


async def collect(
    given: Parsed, permit: Permit, settings: Settings, model: InferenceModel
) -> InferenceRequest:
    """Read a parsed request for a model; `permit` grows by its images. Raises ServiceError."""
    document = _document_of(given.message)
    documents.check(document)
    layout = layout_of(documents.the_input(document, model), model, settings)
    wanted = wanted_of(layout, documents.wanted_outputs(document, model), model)
    permit.foresee(layout.n, kinds(wanted), known_pixels(wanted))
    found: Read = document, layout, await _contents(given, layout, settings)
    return admitted(found, permit, model)


async def _contents(parsed: Parsed, layout: Layout, settings: Settings) -> list[Content]:
    """Return the images of the one input, which stand in raw bytes or in typed fields."""
    (given,), raw, contents = parsed.message.inputs, parsed.wire.raw, parsed.wire.contents
    if len(raw) > 1:
        raise MalformedRequest("raw_input_contents has more tensors than the one input")
    if raw and contents is not None:
        raise MalformedRequest(f"the input {given.name} has its data in two places")
    if raw:
        tensor: Sequence[memoryview] = raw
    elif layout.height:
        tensor = await _numbers(contents or {}, layout)
    else:
        tensor = _elements((contents or {}).get(BYTES, []), layout)
    size = sum(map(len, tensor))
    check_size(size, layout, given.name)
    pieces = _pieces(tensor)
    if layout.height:
        return await of_one_size(pieces, layout, settings)
    return await files(BodyReader(pieces), size, layout.n, settings)


def _elements(given: Sequence[memoryview], layout: Layout) -> list[memoryview]:
    """Return files as they stand in a raw tensor, each behind its length."""
    if len(given) != layout.n:
        raise MalformedRequest(f"bytes_contents has {len(given)} elements, the shape {layout.n}")
    found = list[memoryview]()
    for each in given:
        found += (memoryview(len(each).to_bytes(PREFIX, "little")), each)
    return found


async def _numbers(
    given: Mapping[int, Sequence[memoryview]], layout: Layout
) -> Sequence[memoryview]:
    """Return typed values as the bytes of their tensor."""
    if layout.preprocessed:
        name, tensor = "fp32_contents", given.get(FP32, ())
        if any(len(each) % FLOAT for each in tensor):
            raise MalformedRequest("the message is not a valid ModelInferRequest")
        n_values = sum(map(len, tensor)) // FLOAT
    else:
        name = "uint_contents"
        values = await asyncio.to_thread(octets, given.get(UINT, ()))
        tensor, n_values = [memoryview(values)], len(values)
    if n_values != values_of(layout):
        raise MalformedRequest(
            f"{name} has {n_values} values and the shape {values_of(layout)}; or send the "
            "tensor in raw_input_contents"
        )
    return tensor


async def _pieces(tensor: Sequence[memoryview]) -> AsyncGenerator[bytes, None]:
    for part in tensor:
        for start in range(0, len(part), PIECE):
            yield bytes(part[start : start + PIECE])


def _document_of(message: Any) -> Document:
    """Return what a message says, as the JSON of the same request would say it."""
    return Document(
        [
            GivenTensor(each.name, [*each.shape], each.datatype, _parameters_of(each.parameters))
            for each in message.inputs
        ],
        [GivenOutput(each.name, _parameters_of(each.parameters)) for each in message.outputs],
        message.id,
        _parameters_of(message.parameters),
    )


def _parameters_of(given: Mapping[str, Any]) -> Parameters:
    found: Parameters = {}
    for name, value in given.items():
        chosen = value.WhichOneof("parameter_choice")
        if chosen is not None:
            found[name] = getattr(value, chosen)
    return found
