"""Read an inference request: its JSON, and the images of its one tensor in that or behind it.

Source: the protocol's `inference_rest.md` and Triton's extension for binary tensor data,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import Request

from app.admission import Permit
from app.intake.body import announced
from app.intake.inference import document as documents
from app.intake.inference.document import Document, GivenTensor, WantedOutput
from app.intake.inference.images import (
    BodyReader,
    Content,
    base64_files,
    files,
    numbers,
    of_one_size,
)
from app.intake.inference.layout import Layout, check_size, layout_of
from app.intake.inference.models import ERROR, LOGITS, InferenceModel
from app.intake.item import Item
from app.intake.json_items import AT_ONCE, in_parsing_thread, whole_json
from app.intake.spool import Blob
from app.intake.wanted import ClassifyTensors, ImageRequest, Wanted, kinds, known_pixels
from models.domain.errors import MalformedRequest
from models.settings import Settings
from workers.operations import Classify, FunctionToApply, NetworkOutput

HEADER = "Inference-Header-Content-Length"
"""The HTTP header with the bytes of the JSON, where tensors stand behind it."""

MOST_TEXT = 4 << 20
"""Largest JSON, in bytes, where tensors stand behind it."""


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
    chunks: AsyncIterator[bytes] = request.stream()
    length = _header(request, HEADER)
    reading = (
        _from_json(chunks, settings, model)
        if length is None
        else _from_binary(
            BodyReader(chunks), length, announced(request.scope), permit, settings, model
        )
    )
    return admitted(await reading, permit, model)


def admitted(read: "Read", permit: Permit, model: InferenceModel) -> InferenceRequest:
    """Return the request that was read; its images are held by `permit` from now on."""
    document, layout, contents = read
    if layout.n > 1:
        permit.grow(layout.n - 1, 0)
    outputs = documents.wanted_outputs(document, model)
    items = tuple(Item(index, content) for index, content in enumerate(contents))
    asked = ImageRequest(items, wanted_of(layout, outputs, model))
    errors = any(each.name == ERROR for each in document.outputs)
    return InferenceRequest(asked, outputs, errors, document.id, documents.timeout_of(document))


def _header(request: Request, name: str) -> str | None:
    """Return the values of a header in one line, as HTTP joins them; None if there are none.

    Two values of a length must not be read as the first of them.
    """
    return ", ".join(request.headers.getlist(name)) if name in request.headers else None


Read = tuple[Document, Layout, list[Content]]
"""What was read of a request: what it says, the layout of its tensor, and its images."""


async def _from_binary(
    reader: BodyReader,
    length: str,
    announced: int,
    permit: Permit,
    settings: Settings,
    model: InferenceModel,
) -> Read:
    """Read JSON of `length` bytes and the tensor behind it; 0 bytes are `announced` if unknown.

    What admission would refuse is refused before the tensor is read; `permit` holds no more.
    """
    if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length)):
        raise MalformedRequest(f"{HEADER} is the number of bytes of the JSON")
    size = int(length)
    if size > MOST_TEXT or (announced and size > announced):
        most = min(MOST_TEXT, announced or MOST_TEXT)
        raise MalformedRequest(f"{HEADER} is {size}; here it is at most {most}")
    text = await reader.take(size)
    read = text, settings, model
    document, given, layout = (
        _understood(*read) if size <= AT_ONCE else await in_parsing_thread(_understood, *read)
    )
    if bytes(given.data):
        raise MalformedRequest(f"the input {given.name} has its data behind the JSON and inside")
    behind = documents.binary_size(given)
    if behind is None:
        raise MalformedRequest(f"the input {given.name} lacks the parameter binary_data_size")
    check_size(behind, layout, given.name)
    if announced and size + behind != announced:
        raise MalformedRequest(
            f"{HEADER} ({size}) and binary_data_size ({behind}) make {size + behind} bytes; "
            f"the body has {announced}"
        )
    wanted = wanted_of(layout, documents.wanted_outputs(document, model), model)
    permit.foresee(layout.n, kinds(wanted), known_pixels(wanted))
    if layout.height:
        contents = await of_one_size(reader.pieces(behind), layout)
    else:
        contents = await files(reader, behind, layout.n, settings)
    await reader.end()
    return document, layout, contents


async def _from_json(
    chunks: AsyncIterator[bytes], settings: Settings, model: InferenceModel
) -> Read:
    body = await whole_json(chunks, settings)
    if body.size <= AT_ONCE:
        return _read_json(body, settings, model)
    return await in_parsing_thread(_read_json, body, settings, model)


def _read_json(body: Blob, settings: Settings, model: InferenceModel) -> Read:
    text = body.read()
    body.close()
    document, given, layout = _understood(text, settings, model)
    if documents.binary_size(given) is not None:
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
    document = documents.read_document(text, settings.max_images_per_request)
    given = documents.the_input(document, model)
    documents.wanted_outputs(document, model)
    documents.timeout_of(document)
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
