"""The JSON of an inference request: read strictly where it has a meaning here, else ignored."""

from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Annotated

import msgspec

from app.intake.inference.models import EMBEDDING, ERROR, InferenceModel
from app.intake.json_items import check_tokens
from models.domain.errors import MalformedRequest

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
