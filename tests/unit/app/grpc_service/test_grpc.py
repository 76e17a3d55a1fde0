"""gRPC without a connection: messages, calls as requests, and refusals as statuses."""

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from starlette.types import Receive, Scope, Send

from app.grpc_service import messages
from app.grpc_service.messages import PATHS, message_class
from app.grpc_service.server import LONGEST_DETAIL, _Calls, client_of_peer, refusal_of, scope_of
from app.http.problems import ERROR
from models.domain import errors
from models.domain.errors import NotFound, ServiceError
from models.settings import Settings

SETTINGS = Settings()


def test_the_compiled_form_is_that_of_its_source(tmp_path: Path) -> None:
    compiler = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    folder, made = messages.COMPILED.parent, tmp_path / "made"
    options = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={made}"]
    options.append(f"-I{Path(compiler.__file__).parent / '_proto'}")
    assert compiler.main(["protoc", *options, "inference.proto", "retry.proto"]) == 0
    assert made.read_bytes() == messages.COMPILED.read_bytes()


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
        ("ModelReady", {"name": "stats"}, "/v2/models/stats/versions/1/ready"),
        ("ModelMetadata", {"name": "a%2Fb", "version": "é"}, "/v2/models/a%2Fb/versions/é"),
        ("ModelReady", {}, "/v2/models/ /versions/1/ready"),
        ("ModelReady", {"name": "a" * 5000}, f"/v2/models/{'a' * 120}/versions/1/ready"),
    ],
)
def test_a_call_without_images_is_a_get(method: str, message: dict[str, str], path: str) -> None:
    given = message_class(f"inference.{method}Request")(**message)
    assert messages.request_of(method, given.SerializeToString(), SETTINGS) == (path, 0, b"")


@pytest.mark.parametrize("names", [{"name": "a/b"}, {"name": "a", "version": "1/ready"}])
def test_a_name_with_a_slash_is_no_other_path(names: dict[str, str]) -> None:
    given = message_class("inference.ModelMetadataRequest")(**names).SerializeToString()
    with pytest.raises(NotFound, match=f"no model '{names['name']}' with .*: neither has a slash"):
        messages.request_of("ModelMetadata", given, SETTINGS)


def message(files: list[bytes], raw: bytes = b"") -> bytes:
    """Return a message with files, or with a raw tensor."""
    asked = message_class("inference.ModelInferRequest")(model_name="a")
    given = asked.inputs.add(name="IMAGE", datatype="BYTES", shape=[max(1, len(files))])
    given.contents.bytes_contents.extend(files)
    if raw:
        given.ClearField("contents")
        asked.raw_input_contents.append(raw)
    found: bytes = asked.SerializeToString()
    return found


@pytest.mark.parametrize(
    ("files", "words"),
    [([], "bytes_contents has 0 values"), ([b""] * 65, "65 images; one request")],
)
def test_files_are_counted_before_they_are_copied(files: list[bytes], words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        messages.request_of("ModelInfer", message(files), SETTINGS)


class Call:
    """A call of ModelInfer with `headers`, at a server that trusts a proxy and has one key."""

    def __init__(self, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.clients: list[str] = []
        self.read_messages = 0
        self.kept = 0
        self.scope: Scope = {}
        self.state = SimpleNamespace(service=SimpleNamespace(keys=self))
        self._content = content
        given = {"x-api-key": "good", "x-forwarded-for": "192.0.2.1"} | (headers or {})
        self._metadata = [*given.items()]

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        self.clients.append(client)
        yield

    def client_of(self, scope: Scope) -> None:
        if (b"x-api-key", b"good") not in scope["headers"]:
            raise errors.Unauthorized("no")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = {**scope}
        before, more = tracemalloc.get_traced_memory()[0], True
        while more:
            more = (await receive())["more_body"]
        self.kept = len(self._content) + tracemalloc.get_traced_memory()[0] - before
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def answer(self, method: str = "ModelInfer") -> str:
        """Return the text of the status of the call."""

        async def read() -> bytes:
            self.read_messages += 1
            return self._content[:-1] + self._content[-1:]  # a copy, which only the server holds

        async def abort(_code: grpc.StatusCode, detail: str, _metadata: object) -> None:
            raise RuntimeError(detail)

        settings = Settings(trusted_proxies=("192.0.2.7",))
        context = SimpleNamespace(
            invocation_metadata=lambda: self._metadata,
            peer=lambda: "ipv4:192.0.2.7:99",
            time_remaining=lambda: None,
            read=read,
            abort=abort,
        )
        calls = _Calls(cast(Any, self), settings, cast(Any, self))
        with pytest.raises(RuntimeError) as told:
            await calls.answer(method, cast(Any, None), context)
        return str(told.value)


async def test_a_message_is_let_go_when_the_application_has_it() -> None:
    call = Call(message([], bytes(4 << 20)))
    tracemalloc.start()
    try:
        await call.answer()
    finally:
        tracemalloc.stop()
    assert call.kept < 1 << 20
    assert call.clients == ["192.0.2.1"]


async def test_a_wrong_key_is_refused_by_the_application_before_the_message_is_read() -> None:
    call = Call(b"", {"x-api-key": "bad"})
    await call.answer()
    assert (call.read_messages, call.clients) == (0, [])
    assert (call.scope["method"], call.scope["path"]) == ("POST", PATHS["ModelInfer"])


async def test_a_call_about_the_server_waits_for_no_message() -> None:
    call = Call(b"")
    await call.answer("ServerLive")
    assert (call.read_messages, call.clients) == (0, [])
    assert (call.scope["method"], call.scope["path"]) == ("GET", "/v2/health/live")


@pytest.mark.parametrize(
    ("content", "deadline", "words"),
    [
        (b"\xff", "9", "the message is not a valid ModelInferRequest"),
        (b"", "soon", "positive whole"),
    ],
)
async def test_the_application_is_told_of_a_call_that_is_refused_before_it(
    content: bytes, deadline: str, words: str
) -> None:
    call = Call(content, {"x-deadline-ms": deadline})
    assert words in await call.answer()
    assert words in str(call.scope[ERROR])


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
    assert refusal_of(error)[0] is code


def test_a_refusal_says_when_to_try_again() -> None:
    metadata = dict(refusal_of(OVERLOADED)[2])
    assert (metadata["retry-after"], metadata["grpc-retry-pushback-ms"]) == ("3", "3000")
    status = message_class("google.rpc.Status").FromString(metadata["grpc-status-details-bin"])
    assert (status.code, status.message) == (8, "full")
    delay = message_class("google.rpc.RetryInfo")()
    assert status.details[0].Unpack(delay)
    assert delay.retry_delay.seconds == 3
    assert refusal_of(errors.NotFound("no"))[2] == ()


def test_a_long_text_is_cut() -> None:
    assert len(refusal_of(errors.NotFound("x" * 5000))[1]) == LONGEST_DETAIL
