"""The messages of gRPC: compiled as their source says, and those that Triton's client sends."""

from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from app.grpc_service import messages
from app.grpc_service.messages import message_class

METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata")
NAMES = [
    *(f"{method}{end}" for method in (*METHODS, "ModelInfer") for end in ("Request", "Response")),
    "InferParameter",
    "InferTensorContents",
]

ONLY_THE_PROTOCOL = {
    ("ModelMetadataResponse", "properties"),
    "inference.ModelMetadataResponse.PropertiesEntry",
}
"""What the protocol has and the client lacks."""


def test_the_compiled_form_is_that_of_its_source(tmp_path: Path) -> None:
    compiler = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    folder, made = messages.COMPILED.parent, tmp_path / "made"
    options = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={made}"]
    options.append(f"-I{Path(compiler.__file__).parent / '_proto'}")
    assert compiler.main(["protoc", *options, "inference.proto", "retry.proto"]) == 0
    assert made.read_bytes() == messages.COMPILED.read_bytes()


def fields(descriptor: Any) -> dict[str, tuple[int, int, bool, str | None]]:
    """Return number, type, repetition and oneof of each field."""
    return {
        each.name: (
            each.number,
            each.type,
            each.is_repeated,
            each.containing_oneof.name if each.containing_oneof else None,
        )
        for each in descriptor.fields
    }


def nested(descriptor: Any) -> dict[str, Any]:
    """Return a message's description and those of the messages in it, by their full names."""
    found = {descriptor.full_name: descriptor}
    for each in descriptor.nested_types:
        found |= nested(each)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_the_number_and_the_type_that_tritons_client_uses(name: str) -> None:
    theirs = nested(service_pb2.DESCRIPTOR.message_types_by_name[name])
    for full_name, own in nested(message_class(f"inference.{name}").DESCRIPTOR).items():
        if full_name in ONLY_THE_PROTOCOL:
            continue
        known, found = fields(theirs[full_name]), fields(own)
        assert {k: v for k, v in found.items() if (name, k) not in ONLY_THE_PROTOCOL} == {
            k: v for k, v in known.items() if k in found
        }


def test_the_methods_are_those_of_the_service() -> None:
    own = messages._POOL.FindServiceByName("inference.GRPCInferenceService")
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    for method in own.methods:
        known = theirs.methods_by_name[method.name]
        assert known.input_type.full_name == method.input_type.full_name
        assert known.output_type.full_name == method.output_type.full_name
