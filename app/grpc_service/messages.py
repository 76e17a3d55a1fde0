"""Convert messages of the protocol to requests for `/v2` over HTTP, and answers to messages.

`inference.binpb` is the compiled form of `inference.proto` and `retry.proto`. After a change of
these run in this folder, with grpcio-tools, `python -m grpc_tools.protoc -I. --include_imports
--descriptor_set_out=inference.binpb inference.proto retry.proto`; a test compares the result.

The messages are in a pool of their own. Modules that protoc generates would put the messages into
protobuf's common pool, which has room for a single definition of each name: a process that also
imports a client of Triton or KServe would fail.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from app.http.problems import LONGEST_NAME
from app.intake.inference import ANY_VERSION, HEADER, PREFIX
from app.intake.item import check_count
from models.domain.errors import MalformedRequest, NotFound
from models.settings import Settings

COMPILED = Path(__file__).with_name("inference.binpb")

_POOL = descriptor_pool.DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(COMPILED.read_bytes()).file:
    _POOL.Add(_file)

PATHS = {
    "ServerLive": "/v2/health/live",
    "ServerReady": "/v2/health/ready",
    "ServerMetadata": "/v2",
    "ModelReady": "/v2/models/{name}/versions/{version}/ready",
    "ModelMetadata": "/v2/models/{name}/versions/{version}",
    "ModelInfer": "/v2/models/{name}/versions/{version}/infer",
}
"""The paths over HTTP of all methods."""

OVER_GRPC = ("classification", "parameters")
"""The extensions that gRPC has here, of those that HTTP has."""

MOST_ENTRIES = 1024
"""Outputs, parameters and lengths of a shape of one request."""


def message_class(name: str) -> Any:
    """Return the class of a message by its full name, for instance
    `inference.ModelInferRequest`.
    """
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


class HttpRequest(NamedTuple):
    """A call as a request over HTTP: its path, and JSON of `head` bytes before a tensor."""

    path: str
    head: int = 0
    body: bytes = b""


def request_of(method: str, message: bytes, settings: Settings) -> HttpRequest:
    """Return the request that a message of `method`, which names a model, stands for.

    Raises MalformedRequest, TooLarge for too many images, and NotFound for a name with a slash,
    which would become another path.
    """
    try:
        given = message_class(f"inference.{method}Request").FromString(message)
    except DecodeError:
        raise MalformedRequest(f"the message is not a valid {method}Request") from None
    infers = method == "ModelInfer"
    name, version = (
        (given.model_name, given.model_version) if infers else (given.name, given.version)
    )
    if "/" in name + version:
        raise NotFound(
            f"there is no model {name[:LONGEST_NAME]!r} with version {version[:LONGEST_NAME]!r}: "
            "neither has a slash; GET /models over HTTP lists all"
        )
    most = 2 * LONGEST_NAME  # longer than all names here
    # An empty name is the name of no model, and must not become another path.
    path = PATHS[method].format(name=name[:most] or " ", version=version[:most] or ANY_VERSION)
    if not infers:
        return HttpRequest(path)
    head, tensor = _document(given, settings)
    return HttpRequest(path, len(head), head + tensor)


def _document(given: Any, settings: Settings) -> tuple[bytes, bytes]:
    """Return the JSON of a request for inference, and the tensor behind it."""
    described = [given, *given.inputs[:MOST_ENTRIES], *given.outputs[:MOST_ENTRIES]]
    entries = len(given.inputs) + len(given.outputs) + sum(len(each.shape) for each in given.inputs)
    if entries + sum(len(each.parameters) for each in described) > MOST_ENTRIES:
        raise MalformedRequest(
            f"the request has more than {MOST_ENTRIES} outputs, parameters and lengths; send fewer"
        )
    inputs = [
        {
            "name": each.name,
            "shape": [*each.shape],
            "datatype": each.datatype,
            "parameters": _parameters(each),
        }
        for each in given.inputs
    ]
    tensor = b""
    if len(inputs) == 1:  # the application refuses any other number
        tensor = _tensor(given, given.inputs[0], settings)
        inputs[0]["parameters"]["binary_data_size"] = len(tensor)
    outputs = [
        {"name": each.name, "parameters": _parameters(each) | {"binary_data": True}}
        for each in given.outputs
    ]
    document = {
        "inputs": inputs,
        "outputs": outputs,
        "id": given.id,
        "parameters": _parameters(given) | {"binary_data_output": True},
    }
    return msgspec.json.encode(document), tensor


def _parameters(message: Any) -> dict[str, Any]:
    given = message.parameters
    chosen = {name: value.WhichOneof("parameter_choice") for name, value in given.items()}
    return {name: getattr(given[name], kind) for name, kind in chosen.items() if kind}


def _tensor(message: Any, given: Any, settings: Settings) -> bytes:
    """Return the single input's bytes, which stand in raw bytes or in typed fields."""
    if len(message.raw_input_contents) > 1:
        raise MalformedRequest("raw_input_contents has more tensors than the one input")
    if message.raw_input_contents:
        if given.HasField("contents"):
            raise MalformedRequest(f"the input {given.name} has its data in two places")
        raw: bytes = message.raw_input_contents[0]
        return raw
    fields = {"BYTES": "bytes_contents", "UINT8": "uint_contents", "FP32": "fp32_contents"}
    field = fields.get(given.datatype, "bytes_contents")
    values = getattr(given.contents, field)
    # Without values the datatype, and the shape of numbers, are checked with the document.
    if (values or given.datatype == "BYTES") and len(values) != math.prod(given.shape):
        raise MalformedRequest(
            f"{field} has {len(values)} values, and the shape has another number; send as many, or "
            "send the tensor in raw_input_contents"
        )
    if field == "bytes_contents":
        if values:
            check_count(len(values), settings)
        pairs = ((len(each).to_bytes(PREFIX, "little"), each) for each in values)
        return b"".join(part for pair in pairs for part in pair)
    if field == "fp32_contents":
        return np.fromiter(values, "<f4").tobytes()
    numbers = np.fromiter(values, np.uint32)
    if (numbers > 255).any():
        raise MalformedRequest("the values of a UINT8 tensor are 0 to 255")
    return numbers.astype(np.uint8).tobytes()


def reply_of(method: str, good: bool, headers: Mapping[bytes, bytes], body: bytes) -> bytes:
    """Return the message for an answer over HTTP, or for its failure where the method tells it."""
    reply = message_class(f"inference.{method}Response")()
    if method == "ServerLive":
        reply.live = good
    elif method.endswith("Ready"):
        reply.ready = good
    elif method == "ModelInfer":
        _fill(reply, body, int(headers[HEADER.lower().encode()]))
    else:
        found = json.loads(body)
        if method == "ServerMetadata":
            found["extensions"] = [each for each in found["extensions"] if each in OVER_GRPC]
        reply = type(reply)(**found)
    serialized: bytes = reply.SerializeToString()
    return serialized


def _fill(reply: Any, body: bytes, size: int) -> None:
    """Fill a ModelInferResponse: outputs are raw bytes behind their descriptions."""
    found = json.loads(body[:size])
    reply.model_name, reply.model_version = found["model_name"], found["model_version"]
    reply.id = found.get("id", "")
    for name, value in found["parameters"].items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(reply.parameters[name], kind, value)
    for each in found["outputs"]:
        reply.outputs.add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
        end = size + each["parameters"]["binary_data_size"]
        reply.raw_output_contents.append(body[size:end])
        size = end
