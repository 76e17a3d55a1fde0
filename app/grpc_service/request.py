"""Read a request of ModelInfer: its message, and the images of its one tensor."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from app.admission import Permit
from app.grpc_service.messages import message_class
from app.grpc_service.wire import without_tensors
from app.intake.inference import document as documents
from app.intake.inference.body_reader import BodyReader
from app.intake.inference.document import Document, GivenOutput, GivenTensor, Parameters
from app.intake.inference.images import Content, files, of_one_size
from app.intake.inference.inference_request import InferenceRequest, Read, admitted, wanted_of
from app.intake.inference.layout import PREFIX, Layout, check_size, layout_of, values_of
from app.intake.inference.models import InferenceModel
from app.intake.wanted import kinds
from models.domain.errors import MalformedRequest
from models.settings import Settings

PIECE = 1 << 18
"""Bytes of a tensor that are copied out of its message at a time."""

_ModelInferRequest = message_class("inference.ModelInferRequest")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The message of a request without its raw tensors, and these as views of its bytes."""

    message: Any
    raw: list[memoryview]


def parsed(body: bytes) -> Parsed:
    """Return what the bytes of a request hold; raises MalformedRequest."""
    kept, raw = without_tensors(body)
    try:
        return Parsed(_ModelInferRequest.FromString(kept), raw)
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
    permit.foresee(layout.n, *kinds(wanted))
    found: Read = document, layout, await _contents(given, layout, settings)
    return admitted(found, permit, model)


async def _contents(parsed: Parsed, layout: Layout, settings: Settings) -> list[Content]:
    """Return the images of the one input, which stand in raw bytes or in typed fields."""
    (given,), raw = parsed.message.inputs, parsed.raw
    if len(raw) > 1:
        raise MalformedRequest("raw_input_contents has more tensors than the one input")
    if raw and given.HasField("contents"):
        raise MalformedRequest(f"the input {given.name} has its data in two places")
    if raw:
        tensor: bytes | memoryview = raw[0]
    elif layout.height:
        tensor = _numbers(given.contents, layout)
    else:
        tensor = _elements(given.contents.bytes_contents, layout)
    check_size(len(tensor), layout, given.name)
    pieces = _pieces(memoryview(tensor))
    if layout.height:
        return await of_one_size(pieces, layout, settings)
    return await files(BodyReader(pieces), len(tensor), layout.n, settings)


def _elements(given: Sequence[bytes], layout: Layout) -> bytes:
    """Return files as they stand in a raw tensor, each behind its length."""
    if len(given) != layout.n:
        raise MalformedRequest(f"bytes_contents has {len(given)} elements, the shape {layout.n}")
    return b"".join(len(each).to_bytes(PREFIX, "little") + each for each in given)


def _numbers(given: Any, layout: Layout) -> bytes:
    """Return typed values as the bytes of their tensor."""
    name = "fp32_contents" if layout.preprocessed else "uint_contents"
    values = getattr(given, name)
    if len(values) != values_of(layout):
        raise MalformedRequest(
            f"{name} has {len(values)} values and the shape {values_of(layout)}; or send the "
            "tensor in raw_input_contents"
        )
    if layout.preprocessed:
        return np.fromiter(values, "<f4", len(values)).tobytes()
    found: NDArray[np.uint32] = np.fromiter(values, np.uint32, len(values))
    if found.max(initial=0) > np.iinfo(np.uint8).max:
        raise MalformedRequest("the values of a UINT8 tensor are 0 to 255")
    return found.astype(np.uint8).tobytes()


async def _pieces(tensor: memoryview) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(tensor), PIECE):
        yield bytes(tensor[start : start + PIECE])


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
