"""The Open Inference Protocol: its models, the JSON of a request, and the shape of its one tensor.

A network is a model, and its embedding another one. The JSON of a request is read strictly where it
has a meaning here, and ignored elsewhere. Source:
https://github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

import math
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from app.intake.item import check_count
from app.intake.json_items import check_tokens
from models.domain.errors import MalformedRequest, NotFound, TooManyPixels
from models.networks.registry import NETWORKS
from models.networks.served import ServedNetwork
from models.networks.spec import NetworkSpec
from models.settings import Settings

EMBEDDING_SUFFIX = "_embedding"
"""Ends the name of the model whose output is the embedding of a network."""

VERSION_DIGITS = 12
"""Hexadecimal digits of the weights' SHA-256 that are the version of a model."""

ANY_VERSION = "1"
"""The version by which a client names whatever weights are served."""

LONGEST_NAME = 60

IMAGE, PIXELS, INPUT = "IMAGE", "PIXELS", "INPUT"
SCORES, LOGITS, EMBEDDING, ERROR = "SCORES", "LOGITS", "EMBEDDING", "ERROR"


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
    def spec(self) -> NetworkSpec:
        """Return the specification of the network."""
        return NETWORKS[self.served.name]

    @property
    def version(self) -> str:
        """Return the version, which changes with the weights; empty if there are none."""
        return "" if self.served.model is None else self.served.model.record.sha256[:VERSION_DIGITS]

    @property
    def width(self) -> int:
        """Return the number of values that an image has in an output."""
        if self.embeds:
            return self.spec.features
        return 0 if self.served.model is None else self.served.model.record.n_classes

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the tensors of which a request has exactly one."""
        side = self.spec.preprocessing.crop
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
    """Return all models of a server, those without weights too."""
    return [InferenceModel(each, embeds) for each in networks for embeds in (False, True)]


def model_named(
    networks: Sequence[ServedNetwork], name: str, version: str | None
) -> InferenceModel:
    """Return a model by the names of a URL; NotFound says which there are."""
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


Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number of a request, as the protocol has it. Python has larger ones, but it cannot divide
the largest of them, and does not write one of more than 4,300 digits into a message."""

Parameters = dict[str, bool | Int64 | float | str]

LONGEST_ID = 1000
"""Characters of the id of a request, which its answer repeats."""

MICROSECONDS = 1_000_000

_REFUSED = {
    "sequence_id": "there are no sequences here: each image is answered by itself",
    "priority": "there are no priorities here: clients take turns",
    "shared_memory_region": "shared memory is not supported; send the data in the body",
}
"""Parameters whose meaning cannot be given, so that ignoring them would be wrong."""


class GivenTensor(msgspec.Struct):
    """An input as it stands in the JSON; `data` is not parsed yet."""

    name: str
    shape: list[Int64]
    datatype: str
    parameters: Parameters = {}
    data: msgspec.Raw = msgspec.Raw()


class GivenOutput(msgspec.Struct):
    """An output that is asked for."""

    name: str
    parameters: Parameters = {}


class Document(msgspec.Struct):
    """The JSON of an inference request."""

    inputs: list[GivenTensor]
    outputs: list[GivenOutput] = []
    id: str = ""
    parameters: Parameters = {}


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output of the answer; `classes` of it as text, or 0 for all of its values.

    `binary`: it stands behind the JSON.
    """

    name: str
    binary: bool
    classes: int = 0


_DECODER = msgspec.json.Decoder(Document)


def read_document(text: bytes, most_images: int) -> Document:
    """Return the request; raises MalformedRequest, and TooLarge for a structure over its bounds."""
    text = text.removeprefix(BOM_UTF8)
    # An array of numbers has commas and brackets alone, and stays one piece of text.
    check_tokens(text.count(b'"') // 2 + text.count(b"{") + text.count(b":"), most_images)
    try:
        document = _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise MalformedRequest(f"the inference request is wrong: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedRequest("the inference request is not valid JSON") from None
    check(document)
    return document


def check(document: Document) -> None:
    """Raise MalformedRequest for a long id, and for what ignoring would make wrong."""
    if len(document.id) > LONGEST_ID:
        raise MalformedRequest(f"the id has more than {LONGEST_ID} characters")
    _refuse(document.parameters)
    for given in document.inputs:
        _refuse(given.parameters)
    for wanted in document.outputs:
        _refuse(wanted.parameters)


def the_input(document: Document, model: InferenceModel) -> GivenTensor:
    """Return the only input of a request, of a known name and datatype."""
    names = ", ".join(f"{each.name} ({each.datatype})" for each in model.inputs)
    if len(document.inputs) != 1:
        raise MalformedRequest(
            f"the request has {len(document.inputs)} inputs; send exactly one of {names}"
        )
    (given,) = document.inputs
    for each in model.inputs:
        if each.name == given.name:
            if each.datatype != given.datatype:
                raise MalformedRequest(
                    f"the input {each.name} has the datatype {each.datatype}, not "
                    f"{given.datatype[:20]!r}"
                )
            return given
    raise MalformedRequest(f"there is no input {given.name[:60]!r}; send exactly one of {names}")


def wanted_outputs(document: Document, model: InferenceModel) -> tuple[WantedOutput, ...]:
    """Return the outputs of the answer: all of the model if the request names none."""
    binary = _flag(document.parameters, "binary_data_output", default=False)
    known = [each.name for each in model.outputs]
    given = document.outputs or [GivenOutput(name) for name in known]
    found = tuple(_wanted(each, known, model, binary=binary) for each in given)
    if len({each.name for each in found}) < len(found):
        raise MalformedRequest("an output is asked for more than once")
    return found


def timeout_of(document: Document) -> float | None:
    """Return the seconds that the request may take, None if it does not say."""
    given = document.parameters.get("timeout", 0)
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise MalformedRequest("the parameter timeout is a whole number of microseconds")
    return given / MICROSECONDS if given else None


def binary_size(given: GivenTensor) -> int | None:
    """Return the bytes of a tensor that stand behind the JSON; None if it is part of that."""
    size = given.parameters.get("binary_data_size")
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise MalformedRequest("binary_data_size is a whole number of bytes")
    return size


def _wanted(
    given: GivenOutput, known: list[str], model: InferenceModel, *, binary: bool
) -> WantedOutput:
    if given.name not in known:
        raise MalformedRequest(
            f"the model {model.name} has no output {given.name[:60]!r}; it has {', '.join(known)}"
        )
    classes = given.parameters.get("classification", 0)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 0:
        raise MalformedRequest("the parameter classification is a number of classes, at least 1")
    if classes and given.name in (EMBEDDING, ERROR):
        raise MalformedRequest(f"the output {given.name} has no classes")
    binary = _flag(given.parameters, "binary_data", default=binary)
    return WantedOutput(given.name, binary, min(classes, model.width))


def _flag(parameters: Parameters, name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise MalformedRequest(f"the parameter {name} is true or false")
    return value


def _refuse(parameters: Parameters) -> None:
    for name, reason in _REFUSED.items():
        if parameters.get(name):
            raise MalformedRequest(f"the parameter {name}: {reason}")


PREFIX = 4
"""Bytes of the length before each element of a BYTES tensor."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The images of an input: `n` of them.

    They are files if `height` is 0, else uint8 (height, width, 3) or, if `preprocessed`, float32
    (3, height, width).
    """

    n: int
    height: int = 0
    width: int = 0
    preprocessed: bool = False

    @property
    def n_bytes(self) -> int:
        """Return the bytes of an image that is no file."""
        return self.height * self.width * 3 * (4 if self.preprocessed else 1)


def layout_of(given: GivenTensor, model: InferenceModel, settings: Settings) -> Layout:
    """Return the layout of an input.

    Raises MalformedRequest for a shape that the input cannot have, TooLarge for too many images,
    and TooManyPixels.
    """
    shape = given.shape
    if any(length < 0 for length in shape):
        raise MalformedRequest(f"the shape of {given.name} has a negative number")
    (expected,) = (each.shape for each in model.inputs if each.name == given.name)
    if given.name == IMAGE and shape[1:] == [1]:
        shape = shape[:1]
    fits = len(shape) == len(expected) and all(
        want in (-1, length) for want, length in zip(expected, shape, strict=True)
    )
    if not fits:
        raise MalformedRequest(
            f"the input {given.name} has the shape {_shown(list(expected))}, where -1 is any size; "
            f"the request says {_shown(given.shape)}"
        )
    if shape[0] == 0:
        raise MalformedRequest(f"the input {given.name} has no images; its shape begins with 0")
    check_count(shape[0], settings)
    if given.name == IMAGE:
        return Layout(shape[0])
    if given.name == PIXELS:
        return _samples(shape, settings)
    return Layout(shape[0], shape[2], shape[3], preprocessed=True)


def _samples(shape: list[int], settings: Settings) -> Layout:
    n, height, width = shape[:3]
    if 0 in (height, width):
        raise MalformedRequest("the images of PIXELS have no pixels")
    if height * width > settings.max_pixels:
        raise TooManyPixels(
            f"an image has {height * width:,} pixels; one has at most {settings.max_pixels:,} "
            "(DARKROOM_MAX_PIXELS)"
        )
    return Layout(n, height, width)


def check_size(size: int, layout: Layout, name: str) -> None:
    """Raise MalformedRequest where `binary_data_size` is not what the shape says."""
    if layout.height and size != layout.n * layout.n_bytes:
        raise MalformedRequest(
            f"binary_data_size of {name} is {size}, but its shape has {layout.n * layout.n_bytes} "
            "bytes"
        )
    if not layout.height and size < layout.n * PREFIX:
        raise MalformedRequest(
            f"binary_data_size of {name} is {size}, but {layout.n} elements have at least "
            f"{layout.n * PREFIX} bytes: each begins with its length in {PREFIX}"
        )


def _shown(shape: list[int]) -> str:
    shown = ", ".join(str(length) for length in shape[:8] if abs(length) < 10**20)
    return f"[{shown}{', …' if len(shape) > 8 else ''}]"


def values_of(layout: Layout) -> int:
    """Return the numbers of the whole tensor."""
    return math.prod((layout.n, layout.height, layout.width, 3))
