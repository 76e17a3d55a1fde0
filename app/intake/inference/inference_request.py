"""Read an inference request: its JSON, and the images of its one tensor in that or behind it.

A tensor is cut into its images as it arrives, each into a spool of its own, so large ones go to
disk, and no body is ever held whole. Source: the protocol's `inference_rest.md` and Triton's
extension for binary tensor data,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec
import numpy as np
from fastapi import Request

from app.admission import Permit
from app.intake.body import BodyReader, announced
from app.intake.inference import protocol
from app.intake.inference.protocol import (
    ERROR,
    LOGITS,
    PREFIX,
    Document,
    GivenTensor,
    InferenceModel,
    Layout,
    WantedOutput,
    check_size,
    layout_of,
)
from app.intake.item import Item
from app.intake.json_items import AT_ONCE, from_base64, from_data_uri, in_parsing_thread, whole_json
from app.intake.spool import Blob, keep
from app.intake.wanted import ClassifyTensors, ImageRequest, Wanted
from models.domain.errors import MalformedRequest, ServiceError, TooLarge
from models.settings import Settings
from workers.operations import Classify, FunctionToApply, NetworkOutput

HEADER = "Inference-Header-Content-Length"
"""The HTTP header with the bytes of the JSON, where tensors stand behind it."""

MOST_TEXT = 4 << 20
"""Largest JSON, in bytes, where tensors stand behind it."""


Content = Blob | ServiceError


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request for one model: its images, the outputs of its answer, its id, and its timeout.

    `takes_errors`: it names the output ERROR, so an image that fails is no error of the request.
    The `timeout` is in seconds, from the arrival of the request; None if it names none.
    """

    images: ImageRequest
    outputs: tuple[WantedOutput, ...]
    takes_errors: bool
    id: str
    timeout: float | None


async def collect(
    request: Request, permit: Permit, settings: Settings, model: InferenceModel
) -> InferenceRequest:
    """Read a request, whose body is unpacked; `permit` grows by the images. Raises ServiceError."""
    length = _header(request, HEADER)
    if length is None:
        read = await _from_json(request, settings, model)
    else:
        read = await _from_binary(request, length, settings, model)
    return admitted(read, permit, model)


def admitted(read: "Read", permit: Permit, model: InferenceModel) -> InferenceRequest:
    """Return the request that was read; its images are held by `permit` from now on."""
    document, layout, contents = read
    if layout.n > 1:
        permit.grow(layout.n - 1, 0)
    outputs = protocol.wanted_outputs(document, model)
    items = tuple(Item(index, content) for index, content in enumerate(contents))
    asked = ImageRequest(items, wanted_of(layout, outputs, model))
    errors = any(each.name == ERROR for each in document.outputs)
    return InferenceRequest(asked, outputs, errors, document.id, protocol.timeout_of(document))


def _header(request: Request, name: str) -> str | None:
    """Return the values of a header in one line, as HTTP joins them; None if there are none.

    Two values of a length must not be read as the first of them.
    """
    return ", ".join(request.headers.getlist(name)) if name in request.headers else None


Read = tuple[Document, Layout, list[Content]]
"""What was read of a request: what it says, the layout of its tensor, and its images."""


async def _from_binary(
    request: Request, length: str, settings: Settings, model: InferenceModel
) -> Read:
    """Read JSON of `length` bytes and the tensor behind it."""
    if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length)):
        raise MalformedRequest(f"{HEADER} is the number of bytes of the JSON")
    reader, size, whole = BodyReader(request.stream()), int(length), announced(request.scope)
    if size > MOST_TEXT or (whole and size > whole):
        most = min(MOST_TEXT, whole or MOST_TEXT)
        raise MalformedRequest(f"{HEADER} is {size}; here it is at most {most}")
    text = await _exactly(reader, size)
    read = text, settings, model
    document, given, layout = (
        _understood(*read) if size <= AT_ONCE else await in_parsing_thread(_understood, *read)
    )
    if bytes(given.data):
        raise MalformedRequest(f"the input {given.name} has its data behind the JSON and inside")
    behind = protocol.binary_size(given)
    if behind is None:
        raise MalformedRequest(f"the input {given.name} lacks the parameter binary_data_size")
    check_size(behind, layout, given.name)
    if whole and size + behind != whole:
        raise MalformedRequest(
            f"{HEADER} ({size}) and binary_data_size ({behind}) make {size + behind} bytes; "
            f"the body has {whole}"
        )
    contents = await behind_json(reader, behind, layout, settings)
    end = reader.place
    if await reader.some(1):
        raise MalformedRequest(f"the body goes on after its tensors, which end at byte {end}")
    return document, layout, contents


async def _from_json(request: Request, settings: Settings, model: InferenceModel) -> Read:
    body = await whole_json(request.receive)
    if body.size <= AT_ONCE:
        return _read_json(body, settings, model)
    return await in_parsing_thread(_read_json, body, settings, model)


def _read_json(body: Blob, settings: Settings, model: InferenceModel) -> Read:
    text = body.read()
    body.close()
    document, given, layout = _understood(text, settings, model)
    if protocol.binary_size(given) is not None:
        raise MalformedRequest(f"binary_data_size needs the header {HEADER}")
    data = bytes(given.data)
    if not data.startswith(b"["):
        raise MalformedRequest(f"the input {given.name} needs `data`, an array")
    if layout.height:
        return document, layout, numbers(data, given.shape, layout, settings)
    return document, layout, base64_files(data, layout.n, settings)


def _understood(
    text: bytes, settings: Settings, model: InferenceModel
) -> tuple[Document, GivenTensor, Layout]:
    """Parse and check the whole JSON; nothing of the tensor has been read."""
    document = protocol.read_document(text, settings.max_images_per_request)
    given = protocol.the_input(document, model)
    protocol.wanted_outputs(document, model)
    protocol.timeout_of(document)
    return document, given, layout_of(given, model, settings)


def wanted_of(layout: Layout, outputs: tuple[WantedOutput, ...], model: InferenceModel) -> Wanted:
    """Return what is wanted of each image: as little as the outputs need.

    Classes of one output are labels, which are computed in batches; all values are a vector.
    """
    values = [each for each in outputs if each.name != ERROR]
    name, preprocessed = model.served.name, layout.preprocessed
    if model.embeds:
        output = NetworkOutput.EMBEDDING
    else:
        all_values = len(values) > 1 or any(not each.classes for each in values)
        output = NetworkOutput.LOGITS if all_values else NetworkOutput.LABELS
    top_k, function = 1, FunctionToApply.SOFTMAX
    if output is NetworkOutput.LABELS and values:
        top_k = values[0].classes
        if values[0].name == LOGITS:
            function = FunctionToApply.NONE
    operation = Classify(top_k, function, name, output, preprocessed)
    if not layout.height:
        return operation
    return ClassifyTensors(operation, layout.height, layout.width)


PIECE = 1 << 16
"""Characters of numbers that are parsed at a time, in about a millisecond."""

_SPACES = bytes.maketrans(b"[]", b"  ")
_LEVELS = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=255)]])
_FLOATS = msgspec.json.Decoder(list[float])


def _other_size(layout: Layout, n_bytes: int) -> MalformedRequest:
    more = "more" if n_bytes > layout.n * layout.n_bytes else "fewer"
    return MalformedRequest(
        f"the tensor has {more} values than its shape, which are {layout.n * layout.n_bytes} bytes"
    )


async def behind_json(
    reader: BodyReader, size: int, layout: Layout, settings: Settings
) -> list[Content]:
    """Return the images of a tensor of `size` bytes: samples, or files each after its length.

    A file over its limit is an error of its own. Raises MalformedRequest for a length that reaches
    beyond the tensor.
    """
    missing = partial(_cut_off, reader)
    if layout.height:
        length = layout.n_bytes
        return [await reader.file(length, length, missing) for _ in range(layout.n)]
    found, left = list[Content](), size
    for index in range(layout.n):
        left -= PREFIX
        length = int.from_bytes(await _exactly(reader, PREFIX), "little") if left >= 0 else 0
        left -= length
        if left < 0:
            raise MalformedRequest(
                f"element {index} reaches {-left} bytes beyond the {size} of binary_data_size"
            )
        found.append(await reader.file(length, settings.max_image_bytes, missing))
    if left:
        raise MalformedRequest(f"{left} of the {size} bytes of binary_data_size are no element")
    return found


def base64_files(data: bytes, n: int, settings: Settings) -> list[Content]:
    """Return the files that the strings of a JSON array hold as base64, or as data URIs.

    One that is no base64, or over the limit of a file, is an error of its own.
    """
    strings = _flat(msgspec.json.decode(data))
    if len(strings) != n:
        raise MalformedRequest(f"`data` has {len(strings)} strings; the shape has {n}")
    return [_file(each, settings) for each in strings]


def _flat(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise MalformedRequest("`data` is no array of strings")
    return [string for each in value for string in _flat(each)]


def _file(text: str, settings: Settings) -> Content:
    try:
        if text.lstrip()[:5].lower() == "data:":
            return keep(from_data_uri(text), settings)
        return keep(from_base64(text.encode(errors="replace"), "the element"), settings)
    except (MalformedRequest, TooLarge) as error:
        return error.with_traceback(None)


def numbers(data: bytes, shape: Sequence[int], layout: Layout, settings: Settings) -> list[Content]:
    """Return the images of a JSON array of numbers: uint8, or float32 if preprocessed.

    The numbers stand in one list, or in lists as the shape has them. A parser makes an object of
    every number, 32 bytes for two characters, so PIECE characters are parsed at a time. Raises
    MalformedRequest.
    """
    lists = [math.prod(shape[:depth]) for depth in range(len(shape))]
    if data.count(b"[") not in (1, sum(lists)):
        raise MalformedRequest("the lists in `data` do not have the given shape")
    text, found, start = data.translate(_SPACES), bytearray(), 0
    while start < len(text):
        end = text.find(b",", start + PIECE)
        end = len(text) if end < 0 else end
        found += _parsed(text[start:end], whole=not layout.preprocessed)
        start = end + 1
    size = layout.n_bytes
    if len(found) != layout.n * size:
        raise _other_size(layout, len(found))
    starts = range(0, len(found), size)
    return [keep(bytes(found[start : start + size]), settings, size) for start in starts]


def _parsed(piece: bytes, *, whole: bool) -> bytes:
    text = b"[" + piece + b"]"
    try:
        if whole:
            return bytes(_LEVELS.decode(text))
        with np.errstate(over="ignore"):  # infinite values are found where images are checked
            return np.asarray(_FLOATS.decode(text), np.float32).astype("<f4").tobytes()
    except msgspec.DecodeError as error:
        kind = "whole numbers from 0 to 255" if whole else "numbers"
        reason = str(error).partition(" - at ")[0]
        if not isinstance(error, msgspec.ValidationError):
            reason = "it is not valid JSON"
        raise MalformedRequest(f"`data` has to be {kind}: {reason}") from None


async def _exactly(reader: BodyReader, count: int) -> bytes:
    found = await reader.exactly(count)
    if len(found) < count:
        raise _cut_off(reader, count - len(found))
    return found


def _cut_off(reader: BodyReader, left: int) -> MalformedRequest:
    return MalformedRequest(
        f"the body ends after {reader.place} bytes, {left} before the end of its tensors"
    )
