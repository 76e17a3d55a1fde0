"""gRPC without a connection: messages, calls as requests, and refusals as statuses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from app.grpc_service import messages
from app.grpc_service.messages import message_class
from app.grpc_service.server import LONGEST_DETAIL, Refusal, client_of_peer, scope_of
from models.domain import errors
from models.domain.errors import ServiceError

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


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("ipv4:127.0.0.1:80", ("127.0.0.1", 80)),
        ("ipv6:%5B::1%5D:80", ("::1", 80)),
        ("ipv6:[fe80::1%25eth0]:80", ("fe80::1%eth0", 80)),
        ("unix:", None),
        ("unknown", None),
    ],
)
def test_the_client_is_the_peer(peer: str, client: tuple[str, int] | None) -> None:
    assert client_of_peer(peer) == client


def test_metadata_are_headers() -> None:
    metadata = (("x-api-key", "secret"), ("x-deadline-ms", "70"), ("content-encoding", "gzip"))
    context = SimpleNamespace(
        invocation_metadata=lambda: metadata, peer=lambda: "ipv4:192.0.2.7:99"
    )
    found = scope_of(context)
    assert found["headers"] == [(b"x-api-key", b"secret"), (b"x-deadline-ms", b"70")]
    assert found["client"] == ("192.0.2.7", 99)


@pytest.mark.parametrize(
    ("method", "message", "path"),
    [
        ("ServerLive", {}, "/v2/health/live"),
        ("ModelReady", {"name": "stats"}, "/v2/models/stats/versions/1/ready"),
        ("ModelMetadata", {"name": "a/b", "version": "c"}, "/v2/models/a%2Fb/versions/c"),
    ],
)
def test_a_call_without_images_is_a_get(method: str, message: dict[str, str], path: str) -> None:
    given = message_class(f"inference.{method}Request")(**message)
    assert messages.request_of(method, given.SerializeToString()) == (path, 0, b"")


OVERLOADED = errors.Overloaded("full", 2.5)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.MalformedRequest("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.TooLarge("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.UnsupportedMedia("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.Undecodable("no"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.NotFound("no"), grpc.StatusCode.NOT_FOUND),
        (errors.Unauthorized("no"), grpc.StatusCode.UNAUTHENTICATED),
        (errors.Forbidden("no"), grpc.StatusCode.PERMISSION_DENIED),
        (errors.RateLimited("no", retry_after=1.0), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (OVERLOADED, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.Draining("no"), grpc.StatusCode.UNAVAILABLE),
        (errors.WorkerLost("no"), grpc.StatusCode.UNAVAILABLE),
        (errors.SlowBody("no"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.DeadlineExceeded("no"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.InternalError("no"), grpc.StatusCode.INTERNAL),
    ],
    ids=lambda given: type(given).__name__,
)
def test_every_error_has_a_code(error: ServiceError, code: grpc.StatusCode) -> None:
    assert Refusal.of(error).code is code


def test_a_refusal_says_when_to_try_again() -> None:
    metadata = dict(Refusal.of(OVERLOADED).metadata)
    assert (metadata["retry-after"], metadata["grpc-retry-pushback-ms"]) == ("3", "3000")
    status = message_class("google.rpc.Status").FromString(metadata["grpc-status-details-bin"])
    assert (status.code, status.message) == (8, "full")
    delay = message_class("google.rpc.RetryInfo")()
    assert status.details[0].Unpack(delay)
    assert delay.retry_delay.seconds == 3
    assert Refusal.of(errors.NotFound("no")).metadata == ()


def test_a_long_text_is_cut() -> None:
    assert len(Refusal.of(errors.NotFound("x" * 5000)).detail) == LONGEST_DETAIL
