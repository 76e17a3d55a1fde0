"""When the server says that it refuses many requests."""

import json

import pytest

from app.admission.counters import Rate, Total
from app.connections.early_answer import EarlyAnswer
from app.routes.images import early_refusal
from app.routes.images.early_refusal import EarlyRefusal
from app.telemetry.metrics import Metrics
from tests.bench.refusal_path import overloaded


def answer(
    decide: EarlyRefusal,
    media_type: bytes = b"image/jpeg",
    length: bytes | None = None,
    path: str = "/classify",
) -> EarlyAnswer | None:
    sized = [] if length is None else [(b"content-length", length)]
    return decide(
        {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "client": ("127.0.0.1", 5),
            "headers": [(b"content-type", media_type), *sized],
        }
    )


def refused(
    decide: EarlyRefusal, media_type: bytes = b"image/jpeg", length: bytes | None = None
) -> bool:
    return answer(decide, media_type, length) is not None


@pytest.mark.parametrize(
    "path", ["/v2/models/resnet18/infer", "/v2/models/resnet18/versions/1/infer"]
)
def test_a_flood_of_inference_requests_is_refused_in_the_form_of_the_protocol(path: str) -> None:
    decide = overloaded()
    metrics = decide._service.metrics
    for _ in range(2):  # the second is the prepared answer
        found = answer(decide, b"application/octet-stream", path=path)
        assert found is not None
        assert [*json.loads(found.body)] == ["error"]
        assert b"\r\ncontent-type: application/json\r\n" in found.headers
        assert b"content-length: %d\r\n" % len(found.body) in found.headers
    template = path.replace("resnet18", "{model}").replace("/1/", "/{version}/")
    assert counted(metrics, template) == 2


def counted(metrics: Metrics, path: str) -> float:
    """Return the refused requests of a route."""
    sums = metrics.request("POST", path, "503")._buckets
    return float(sum(each.get() for each in sums))


def test_other_paths_of_the_protocol_are_left_to_the_application() -> None:
    decide = overloaded()
    for path in ("/v2/models/infer", "/v2/models/a/b/infer", "/v2/models/resnet18", "/v2/x"):
        assert answer(decide, path=path) is None


def test_a_path_with_braces_is_no_template() -> None:
    literal = "/v2/models/{model}/infer"
    found = answer(overloaded(), path=literal)
    assert found is not None  # a model of that name, refused as any other is
    assert [*json.loads(found.body)] == ["error"]


def test_a_refusal_presses_the_server_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = overloaded()
    assert not decide.pressed()
    assert refused(decide)
    assert decide.pressed()
    monkeypatch.setattr(early_refusal, "PRESSED", 0.0)
    assert not decide.pressed()


def test_with_a_rate_limit_no_request_may_be_decided_twice() -> None:
    decide = overloaded()
    decide._service.admission.rate = Rate(1000.0, 1000)
    assert refused(decide)
    assert not decide.pressed()


@pytest.mark.parametrize("images", [0, 512])
def test_the_length_of_a_stream_is_not_held_and_its_images_wait_for_room(images: int) -> None:
    decide = overloaded()
    admission = decide._service.admission
    admission.account.rate = 1e9  # only memory and images are short
    admission.counters.add(Total.IMAGES, images)
    admission.counters.add(Total.BYTES, admission.limits.bytes - 1000)
    assert refused(decide, length=b"2000")
    for kind in (b"application/x-ndjson", b"Application/X-Length-Delimited; a=b"):
        assert not refused(decide, kind, length=b"2000")


def test_a_stream_that_comes_too_late_is_refused_early() -> None:
    assert refused(overloaded(), b"application/x-ndjson", length=b"9000000000")
