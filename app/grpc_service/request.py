"""Read a request of ModelInfer: the images of its one tensor."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import numpy as np

from app.admission import Permit
from app.intake.body import BodyReader
from app.intake.inference import (
    PREFIX,
    Content,
    Document,
    InferenceModel,
    InferenceRequest,
    Layout,
    admitted,
    behind_json,
    checked,
    document_of,
)
from models.domain.errors import MalformedRequest
from models.settings import Settings

PIECE = 1 << 18
"""Bytes of a tensor that are copied out of its message at a time."""

MOST_ENTRIES = 1024
"""Outputs, parameters and lengths of a shape of one request; many would take an event loop long."""


async def collect(
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
    return admitted(head, await _contents(message, head.layout, settings), permit)


async def _contents(message: Any, layout: Layout, settings: Settings) -> list[Content]:
    """Return the images of the one input, which stand in raw bytes or in typed fields."""
    (given,), n_raw = message.inputs, len(message.raw_input_contents)
    if n_raw > 1:
        raise MalformedRequest("raw_input_contents has more tensors than the one input")
    if n_raw and given.HasField("contents"):
        raise MalformedRequest(f"the input {given.name} has its data in two places")
    if n_raw:
        tensor: Sequence[bytes] = message.raw_input_contents
    elif layout.height:
        tensor = [await asyncio.to_thread(_numbers, given.contents, layout)]
    else:
        tensor = _elements(given.contents.bytes_contents, layout)
    size = sum(map(len, tensor))
    layout.check_size(size, given.name)
    return await behind_json(BodyReader(_pieces(tensor)), size, layout, settings)


def _elements(given: Sequence[bytes], layout: Layout) -> list[bytes]:
    """Return files as they stand in a raw tensor, each behind its length."""
    if len(given) != layout.n:
        raise MalformedRequest(f"bytes_contents has {len(given)} elements, the shape {layout.n}")
    return [part for each in given for part in (len(each).to_bytes(PREFIX, "little"), each)]


def _numbers(contents: Any, layout: Layout) -> bytes:
    """Return typed values as the bytes of their tensor."""
    name = "fp32_contents" if layout.preprocessed else "uint_contents"
    given = getattr(contents, name)
    n_values = layout.n * layout.n_values
    if len(given) != n_values:
        raise MalformedRequest(
            f"{name} has {len(given)} values and the shape {n_values}; or send the tensor in "
            "raw_input_contents"
        )
    if layout.preprocessed:
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
    """Return what a message says, as the JSON of the same request would say it."""
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
