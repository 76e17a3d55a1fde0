"""Traces of a real server, as a receiver that speaks OTLP over HTTP gets them."""

from typing import Any

import pytest

from tests.e2e.conftest import origin
from tests.pictures import jpeg
from tests.server import COLD, FILTERS, post, serving

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
JOINED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "mine"}


@pytest.fixture(scope="module")
def spans() -> list[Any]:
    """Return what a server sent by its end, after a request of one image and a request of two."""
    requests: list[ExportTraceServiceRequest] = []

    def receive(path: str, body: bytes) -> tuple[int, bytes]:
        assert path == "/v1/traces"
        requests.append(ExportTraceServiceRequest.FromString(body))
        return 200, b""

    with origin(receive) as address:
        environment = FILTERS | {
            "DARKROOM_TRACING": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_BSP_SCHEDULE_DELAY": "600000",  # so that only the end of the server sends them
        }
        with serving("--log-level", "error", environment=environment, program=COLD) as server:
            url = f"http://127.0.0.1:{server.port}"
            headers = {"Content-Type": "image/jpeg"} | JOINED
            reply = post(f"{url}/filter?name=sepia", content=jpeg(), headers=headers)
            assert reply.status_code == 200
            files = [("files", (f"{n}.jpg", jpeg(n), "image/jpeg")) for n in range(2)]
            body = {"versions": '[{"name": "sepia"}, {"name": "invert"}]', "labels": "false"}
            assert post(f"{url}/process", data=body, files=files).status_code == 200
    found = [each for request in requests for each in request.resource_spans]
    return [span for each in found for scope in each.scope_spans for span in scope.spans]


def named(spans: list[Any], name: str) -> Any:
    (found,) = [span for span in spans if span.name == name]
    return found


def attributes(span: Any) -> dict[str, Any]:
    return {e.key: e.value.string_value or e.value.int_value for e in span.attributes}


def test_the_span_of_a_request_joins_the_trace_of_its_client_and_has_one_for_each_stage(
    spans: list[Any],
) -> None:
    joined = [span for span in spans if span.trace_id.hex() == TRACE]
    request, image = named(joined, "POST /filter"), named(joined, "image")
    assert request.parent_span_id.hex() == PARENT
    told = attributes(request)
    assert told["darkroom.request_id"] == "mine"
    assert (told["http.route"], told["http.response.status_code"]) == ("/filter", 200)
    assert image.parent_span_id == named(joined, "intake").parent_span_id == request.span_id
    stages = [span for span in joined if span.parent_span_id == image.span_id]
    assert {"decode", "queue", "compute", "encode"} <= {span.name for span in stages}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in stages)


def test_each_image_and_each_version_has_a_span_of_its_own(spans: list[Any]) -> None:
    request = named(spans, "POST /process")
    images = [e for e in spans if e.name == "image" and e.parent_span_id == request.span_id]
    versions = [span for span in spans if span.name == "version"]
    assert {attributes(span)["darkroom.image.index"] for span in images} == {0, 1}
    assert {span.parent_span_id for span in versions} == {span.span_id for span in images}
    assert len(versions) == 4
