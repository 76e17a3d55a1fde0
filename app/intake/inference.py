"""Read a request of the Open Inference Protocol: its JSON, and the images of its one tensor.

A network is a model, and its embedding another model. The JSON of a request is read strictly where
it has a meaning here, and ignored elsewhere. The body waits in a spool as any upload does, and a
tensor behind the JSON is cut into its images, so large bodies and images are on disk.
Sources: the protocol's `inference_rest.md`,
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md,
and Triton's extension for binary tensor data,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md.
"""

import math
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from io import SEEK_CUR
from typing import IO, Annotated

import msgspec
import numpy as np
from fastapi import Request

from app.admission import Permit
from app.http.problems import LONGEST_NAME
from app.intake.body import spooled
from app.intake.item import Item, check_count
from app.intake.json_items import (
    AT_ONCE,
    check_tokens,
    from_base64,
    from_data_uri,
    in_parsing_thread,
    whole_json,
)
from app.intake.spool import Blob, keep, keep_part, too_large
from app.intake.wanted import ClassifyTensors
from models.domain.errors import (
    MalformedRequest,
    NotFound,
    ServiceError,
    TooLarge,
    TooManyPixels,
)
from models.networks.served import ServedNetwork
from models.networks.spec import EMBEDDING_SUFFIX
from models.settings import Settings
from workers.operations import Classify, FunctionToApply, NetworkOutput

HEADER = "Inference-Header-Content-Length"
"""The HTTP header with the bytes of the JSON, where tensors stand behind it."""

MOST_TEXT = 4 << 20
"""Largest JSON, in bytes, where tensors stand behind it."""

VERSION_DIGITS = 12
"""Hexadecimal digits of the weights' SHA-256 that are the version of a model."""

ANY_VERSION = "1"
"""The version by which a client names whatever weights are served."""

SIZE = "binary_data_size"
"""The parameter with the bytes of a tensor behind the JSON."""

PREFIX = 4
"""Bytes of the length before each element of a BYTES tensor."""

PIECE = 1 << 16
"""Characters of numbers that are parsed at a time, in about a millisecond."""

IMAGE, PIXELS, INPUT = "IMAGE", "PIXELS", "INPUT"
SCORES, LOGITS, EMBEDDING, ERROR = "SCORES", "LOGITS", "EMBEDDING", "ERROR"

Content = Blob | ServiceError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of a model as its metadata describes it; -1 is a dimension of any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InferenceModel:
    """A network as a model of the protocol; `embeds` says which of its outputs it gives."""

    served: ServedNetwork
    embeds: bool = False

    @property
    def name(self) -> str:
        """Return the name in the URL."""
        return self.served.name + (EMBEDDING_SUFFIX if self.embeds else "")

    @property
    def version(self) -> str:
        """Return the version, which changes with the weights; empty if there are none."""
        return "" if self.served.model is None else self.served.model.record.sha256[:VERSION_DIGITS]

    @property
    def width(self) -> int:
        """Return the number of values that an image has in an output."""
        return self.served.features if self.embeds else self.served.n_classes

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors of which a request has exactly one."""
        side = self.served.side
        return (
            TensorSpec(IMAGE, "BYTES", (-1,)),
            TensorSpec(PIXELS, "UINT8", (-1, -1, -1, 3)),
            TensorSpec(INPUT, "FP32", (-1, 3, side, side)),
        )

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that an answer has if the request names none."""
        names = (EMBEDDING,) if self.embeds else (SCORES, LOGITS)
        values = [TensorSpec(name, "FP32", (-1, self.width)) for name in names]
        return (*values, TensorSpec(ERROR, "BYTES", (-1,)))


def models_of(networks: Sequence[ServedNetwork]) -> list[InferenceModel]:
    """Return all models of a server, also without weights; scores need classes."""
    return [
        InferenceModel(each, embeds)
        for each in networks
        for embeds in (False, True)
        if embeds or each.n_classes or each.model is None
    ]


def model_named(
    networks: Sequence[ServedNetwork], name: str, version: str | None
) -> InferenceModel:
    """Return a model by the names of a URL; NotFound says which models there are."""
    known = models_of(networks)
    for each in known:
        if each.name == name:
            if version in (None, ANY_VERSION, each.version):
                return each
            raise NotFound(
                f"the model {name} has no version {str(version)[:LONGEST_NAME]!r}; the version "
                f"of its weights is {each.version or 'none'}"
            )
    allowed = ", ".join(each.name for each in known) or "none"
    raise NotFound(f"there is no model {name[:LONGEST_NAME]!r} here; there are: {allowed}")


Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A whole number of a request. The protocol has 64 bits; Python has larger numbers, but cannot
divide the largest of them, and does not write 4,300 digits into a message."""

_REFUSED = {
    "sequence_id": "there are no sequences here: each image is answered by itself",
    "priority": "there are no priorities here: clients take turns",
    "shared_memory_region": "shared memory is not supported; send the data in the body",
}
"""Parameters whose meaning cannot be given, so that ignoring them would be wrong."""


class Parameters(msgspec.Struct, frozen=True):
    """The parameters that have a meaning here, of a request, an input or an output.

    `classification` is a number of classes, 0 for all values. `timeout` is in microseconds.
    """

    binary_data_size: Whole | None = None
    binary_data_output: bool = False
    binary_data: bool | None = None
    classification: Whole = 0
    timeout: Whole = 0
    sequence_id: bool | int | float | str = 0
    priority: bool | int | float | str = 0
    shared_memory_region: bool | int | float | str = ""

    def __post_init__(self) -> None:
        for name, reason in _REFUSED.items():
            if getattr(self, name):
                raise ValueError(f"the parameter {name}: {reason}")


_NONE = Parameters()


class GivenTensor(msgspec.Struct):
    """An input as it stands in the JSON; `data` is not parsed yet."""

    name: str
    shape: list[Whole]
    datatype: str
    parameters: Parameters = _NONE
    data: msgspec.Raw = msgspec.Raw()


class GivenOutput(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: Parameters = _NONE


class Document(msgspec.Struct):
    """The JSON of an inference request; its answer repeats the id."""

    inputs: list[GivenTensor]
    outputs: list[GivenOutput] = []
    id: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    parameters: Parameters = _NONE


_DECODER = msgspec.json.Decoder(Document)


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output of the answer; `classes` of it as text, or 0 for all of its values.

    `binary`: it stands behind the JSON.
    """

    name: str
    binary: bool
    classes: int = 0


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request for one model, which was checked as a whole before its tensor is read: `n` images.

    `outputs` are those of its answer; `items` are empty until the tensor has been read.
    """

    document: Document
    input: GivenTensor
    n: int
    wanted: Classify | ClassifyTensors
    outputs: tuple[WantedOutput, ...]
    items: tuple[Item, ...] = ()

    @property
    def timeout(self) -> float:
        """Return the seconds from the arrival of the request to its end; infinite by default."""
        return self.document.parameters.timeout / 1e6 or math.inf


async def collect(
    request: Request, permit: Permit, settings: Settings, model: InferenceModel
) -> InferenceRequest:
    """Read a request, whose body is unpacked; `permit` grows by the images. Raises ServiceError."""
    lengths = request.headers.getlist(HEADER)
    if lengths:  # several must not be read as the first of them
        size = _head_size(", ".join(lengths))
        body = await spooled(request.receive, settings.max_body_bytes)
    else:
        size, body = None, await whole_json(request.receive)
    read = body, size, settings, model
    at_once = not body.on_disk and (size or body.size) <= AT_ONCE
    head, contents = _read(*read) if at_once else await in_parsing_thread(_read, *read)
    if head.n > 1:
        permit.grow(head.n - 1, 0)
    return replace(head, items=tuple(Item(n, content) for n, content in enumerate(contents)))


def _head_size(text: str) -> int:
    """Return the bytes of the JSON before a tensor, by the header HEADER."""
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text)):
        raise MalformedRequest(f"{HEADER} is the number of bytes of the JSON")
    if int(text) > MOST_TEXT:
        raise MalformedRequest(f"{HEADER} is {text}; here it is at most {MOST_TEXT}")
    return int(text)


def _read(
    body: Blob, size: int | None, settings: Settings, model: InferenceModel
) -> tuple[InferenceRequest, list[Content]]:
    """Read a body, and close it: JSON of `size` bytes and a tensor, or JSON alone."""
    with closing(body), body.opened() as file:
        if size is not None and size > body.size:
            raise MalformedRequest(f"{HEADER} is {size}; the body has {body.size} bytes")
        head = _head(file.read(body.size if size is None else size), settings, model)
        given, wanted = head.input, head.wanted
        behind, data = given.parameters.binary_data_size, bytes(given.data)
        given.data = msgspec.Raw()  # it keeps the whole JSON in memory, also while images wait
        if size is not None:
            if data:
                raise MalformedRequest(
                    f"the input {given.name} has its data behind the JSON and inside"
                )
            if behind is None:
                raise MalformedRequest(f"the input {given.name} lacks the parameter {SIZE}")
            if isinstance(wanted, ClassifyTensors) and behind != head.n * wanted.n_bytes:
                raise MalformedRequest(
                    f"{SIZE} of {given.name} is {behind}, but its shape has "
                    f"{head.n * wanted.n_bytes} bytes"
                )
            if size + behind != body.size:
                raise MalformedRequest(
                    f"{HEADER} ({size}) and {SIZE} ({behind}) make {size + behind} bytes; "
                    f"the body has {body.size}"
                )
            return head, _behind_json(file, behind, head, settings)
    if behind is not None:
        raise MalformedRequest(f"{SIZE} needs the header {HEADER}")
    if not data.startswith(b"["):
        raise MalformedRequest(f"the input {given.name} needs `data`, an array")
    if isinstance(wanted, ClassifyTensors):
        return head, numbers(data, given.shape, wanted)
    return head, base64_files(data, head.n, settings)


def _head(text: bytes, settings: Settings, model: InferenceModel) -> InferenceRequest:
    """Parse and check the whole JSON, whose input and outputs are tensors of the model.

    Nothing of the tensor has been read. Raises ServiceError.
    """
    text = text.removeprefix(BOM_UTF8)
    # An array of numbers has commas and brackets alone, and stays one piece of text.
    n_tokens = text.count(b'"') // 2 + text.count(b"{") + text.count(b":")
    check_tokens(n_tokens, settings.max_images_per_request)
    try:
        document = _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise MalformedRequest(f"the inference request is wrong: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedRequest("the inference request is not valid JSON") from None
    names = ", ".join(f"{each.name} ({each.datatype})" for each in model.inputs)
    if len(document.inputs) != 1:
        raise MalformedRequest(
            f"the request has {len(document.inputs)} inputs; send exactly one of {names}"
        )
    (given,) = document.inputs
    spec = next((each for each in model.inputs if each.name == given.name), None)
    if spec is None:
        raise MalformedRequest(
            f"there is no input {given.name[:LONGEST_NAME]!r}; send exactly one of {names}"
        )
    if spec.datatype != given.datatype:
        raise MalformedRequest(
            f"the input {spec.name} has the datatype {spec.datatype}, not {given.datatype[:20]!r}"
        )
    outputs = _wanted_outputs(document, model)
    n, height, width = _size_of(given, spec, settings)
    operation = _operation_of(model, outputs, spec.name == INPUT)
    wanted = ClassifyTensors(operation, height, width) if height else operation
    return InferenceRequest(document, given, n, wanted, outputs)


def _size_of(given: GivenTensor, spec: TensorSpec, settings: Settings) -> tuple[int, int, int]:
    """Return the number of images of an input, their height and width; files have 0 and 0.

    Raises MalformedRequest for a shape that the input cannot have, TooLarge for too many images,
    and TooManyPixels.
    """
    shape = given.shape
    if spec.name == IMAGE and shape[1:] == [1]:
        shape = shape[:1]
    fits = len(shape) == len(spec.shape) and all(
        want in (-1, length) for want, length in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise MalformedRequest(
            f"the input {spec.name} has the shape {_shown(spec.shape)}, where -1 is any size; "
            f"the request says {_shown(given.shape)}"
        )
    if shape[0] == 0:
        raise MalformedRequest(f"the input {spec.name} has no images; its shape begins with 0")
    check_count(shape[0], settings)
    if spec.name == IMAGE:
        return shape[0], 0, 0
    if spec.name == INPUT:
        return shape[0], shape[2], shape[3]
    n, height, width, _ = shape
    if 0 in (height, width):
        raise MalformedRequest("the images of PIXELS have no pixels")
    if height * width > settings.max_pixels:
        raise TooManyPixels(
            f"an image has {height * width:,} pixels; one has at most {settings.max_pixels:,} "
            "(DARKROOM_MAX_PIXELS)"
        )
    return n, height, width


def _shown(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape[:8]))}{', …' if len(shape) > 8 else ''}]"


def _wanted_outputs(document: Document, model: InferenceModel) -> tuple[WantedOutput, ...]:
    """Return the outputs of the answer: all of the model if the request names none."""
    known = [each.name for each in model.outputs]
    found: dict[str, WantedOutput] = {}
    for each in document.outputs or [GivenOutput(name) for name in known]:
        classes, binary = each.parameters.classification, each.parameters.binary_data
        if each.name not in known:
            raise MalformedRequest(
                f"the model {model.name} has no output {each.name[:LONGEST_NAME]!r}; "
                f"it has {', '.join(known)}"
            )
        if classes and each.name in (EMBEDDING, ERROR):
            raise MalformedRequest(f"the output {each.name} has no classes")
        if each.name in found:
            raise MalformedRequest("an output is asked for more than once")
        if binary is None:
            binary = document.parameters.binary_data_output
        found[each.name] = WantedOutput(each.name, binary, min(classes, model.width))
    return tuple(found.values())


def _operation_of(
    model: InferenceModel, outputs: tuple[WantedOutput, ...], preprocessed: bool
) -> Classify:
    """Return the operation on each image: as little as the outputs need.

    Classes of one output are labels, which are computed in batches; all values are a vector.
    """
    values = [each for each in outputs if each.name != ERROR]
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
    return Classify(top_k, function, model.served.name, output, preprocessed)


_SPACES = bytes.maketrans(b"[]", b"  ")
_LEVELS = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=255)]])
_FLOATS = msgspec.json.Decoder(list[float])


def _behind_json(
    file: IO[bytes], size: int, head: InferenceRequest, settings: Settings
) -> list[Content]:
    """Return the images of a tensor of `size` bytes: samples, or files each after its length.

    A file over its limit is an error of its own. Raises MalformedRequest for a length that reaches
    beyond the tensor.
    """
    if isinstance(head.wanted, ClassifyTensors):
        return [keep_part(file, head.wanted.n_bytes) for _ in range(head.n)]
    found, left = list[Content](), size
    for index in range(head.n):
        left -= PREFIX
        length = int.from_bytes(file.read(PREFIX), "little") if left >= 0 else 0
        left -= length
        if left < 0:
            raise MalformedRequest(
                f"element {index} reaches {-left} bytes beyond the {size} of {SIZE}"
            )
        if length > settings.max_image_bytes:
            found.append(too_large(length, settings.max_image_bytes))
            file.seek(length, SEEK_CUR)
        else:
            found.append(keep_part(file, length))
    if left:
        raise MalformedRequest(f"{left} of the {size} bytes of {SIZE} are no element")
    return found


def base64_files(data: bytes, n: int, settings: Settings) -> list[Content]:
    """Return the files that the strings of a JSON array hold as base64, or as data URIs.

    One that is no base64, or over the limit of a file, is an error of its own.
    """
    try:
        strings = _flat(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedRequest("`data` is no array of strings in UTF-8") from None
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
            return keep(from_data_uri(text), settings.max_image_bytes)
        return keep(
            from_base64(text.encode(errors="replace"), "the element"), settings.max_image_bytes
        )
    except (MalformedRequest, TooLarge) as error:
        return error.with_traceback(None)


def numbers(data: bytes, shape: Sequence[int], wanted: ClassifyTensors) -> list[Content]:
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
        found += _parsed(text[start:end], whole=not wanted.operation.preprocessed)
        start = end + 1
    size, whole = wanted.n_bytes, shape[0] * wanted.n_bytes
    if len(found) != whole:
        more = "more" if len(found) > whole else "fewer"
        raise MalformedRequest(
            f"the tensor has {more} values than its shape, which are {whole} bytes"
        )
    starts = range(0, len(found), size)
    return [keep(bytes(found[start : start + size]), size) for start in starts]


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
