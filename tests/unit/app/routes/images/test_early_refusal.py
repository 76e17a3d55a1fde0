"""When the server says that it refuses many requests."""

import pytest

from app.admission.counts.fields import Total
from app.admission.counts.rates import Rate
from app.routes.images import early_refusal
from app.routes.images.early_refusal import EarlyRefusal
from tests.bench.refusal_path import overloaded


def refused(
    decide: EarlyRefusal, media_type: bytes = b"image/jpeg", length: bytes | None = None
) -> bool:
    sized = [] if length is None else [(b"content-length", length)]
    return (
        decide(
            {
                "type": "http",
                "method": "POST",
                "path": "/classify",
                "query_string": b"",
                "client": ("127.0.0.1", 5),
                "headers": [(b"content-type", media_type), *sized],
            }
        )
        is not None
    )


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
    admission.forecast.capacity.per_second = 1e9  # only memory and images are short
    admission.counters.add(Total.IMAGES, images)
    admission.counters.add(Total.BYTES, admission.limits.bytes - 1000)
    assert refused(decide, length=b"2000")
    for kind in (b"application/x-ndjson", b"Application/X-Length-Delimited; a=b"):
        assert not refused(decide, kind, length=b"2000")


def test_a_stream_that_comes_too_late_is_refused_early() -> None:
    assert refused(overloaded(), b"application/x-ndjson", length=b"9000000000")
