"""Traces of a real server: spans in memory, and spans at a receiver that speaks OTLP over HTTP."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from app.main import create_app
from app.processes.uvicorn_server import Server
from models.settings import Settings
from tests.pictures import jpeg
from tests.server import PATIENCE, post, serving

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

RAW = {"Content-Type": "image/jpeg"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Traced:
    """A server whose spans stay in memory."""

    def __init__(self, client: httpx.Client, spans: InMemorySpanExporter) -> None:
        self.client = client
        self._spans = spans

    def of(self, path: str, **request: object) -> tuple[httpx.Response, Sequence[ReadableSpan]]:
        """Send a request; return its answer and the spans that have ended by the server's own."""
        self._spans.clear()
        reply = self.client.post(path, **request)  # type: ignore[arg-type]  # as httpx takes it
        self.client.get("/filters/sepia")  # its span ends after that of the request before it
        found = self._spans.get_finished_spans()
        return reply, [span for span in found if span.name != "GET /filters/{name}"]


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = Settings(
        weights="bundled",
        log_level="error",
        default_deadline=100,
        precision="fp32",
        result_cache=1 << 20,
    )
    app = create_app(settings, traces=provider)
    server, listening = Server(app, settings), socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            client.get("/livez", timeout=None)
            yield Traced(client, exporter)
    finally:
        server.should_exit = True
        thread.join()


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def test_the_span_of_a_request_joins_the_trace_of_its_client_and_has_one_for_each_stage(
    traced: Traced,
) -> None:
    joined = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "mine"}
    reply, spans = traced.of("/filter?name=sepia", content=jpeg(), headers=RAW | joined)
    assert reply.status_code == 200
    request, image = named(spans, "POST /filter"), named(spans, "image")
    assert {span.context.trace_id for span in spans if span.context} == {int(TRACE, 16)}
    assert parent(request) == int(PARENT, 16)
    assert request.attributes is not None
    assert request.attributes["darkroom.request_id"] == "mine"
    assert request.attributes["http.route"] == "/filter"
    assert request.attributes["http.response.status_code"] == 200
    assert parent(image) == parent(named(spans, "intake")) == own(request)
    stages = [span for span in spans if parent(span) == own(image)]
    assert {"decode", "queue", "compute", "encode"} <= {span.name for span in stages}
    for span in stages:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def test_each_image_and_each_version_has_a_span_of_its_own(traced: Traced) -> None:
    files = [("files", (f"{n}.jpg", jpeg(n), "image/jpeg")) for n in range(2)]
    body = {"versions": '[{"name": "sepia"}, {"name": "invert"}]', "labels": "false"}
    _, spans = traced.of("/process", data=body, files=files)
    images = [span for span in spans if span.name == "image"]
    versions = [span for span in spans if span.name == "version"]
    numbers = {s.attributes["darkroom.image.index"] for s in images if s.attributes is not None}
    assert numbers == {0, 1}
    assert {parent(span) for span in images} == {own(named(spans, "POST /process"))}
    assert {parent(span) for span in versions} == {own(span) for span in images}
    assert len(versions) == 4


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Receive spans by OTLP over HTTP while the block runs; yield the address, and what came."""
    received: list[ExportTraceServiceRequest] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_a_server_sends_its_spans_by_otlp_before_it_ends() -> None:
    with receiver() as (address, received):
        environment = {
            "DARKROOM_TRACING": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_BSP_SCHEDULE_DELAY": "600000",  # so that only the end of the server sends them
        }
        flags = ("--weights", "random", "--precision", "fp32", "--log-level", "error")
        with serving(*flags, environment=environment) as server:
            url = f"http://127.0.0.1:{server.port}/filter?name=invert"
            assert post(url, content=jpeg(), headers=RAW).status_code == 200
    resources = [each for request in received for each in request.resource_spans]
    names = {a.value.string_value for r in resources for a in r.resource.attributes}
    assert "darkroom" in names
    spans = {s.name for r in resources for scope in r.scope_spans for s in scope.spans}
    assert {"POST /filter", "image", "decode", "compute", "encode"} <= spans
