"""When the server says that it refuses many requests."""

import pytest

from app.admission.rates import Rate
from app.routes import early_refusal
from app.routes.early_refusal import EarlyRefusal
from tests.bench.refusal_path import overloaded


def refused(decide: EarlyRefusal) -> bool:
    return (
        decide(
            {
                "type": "http",
                "method": "POST",
                "path": "/classify",
                "query_string": b"",
                "client": ("127.0.0.1", 5),
                "headers": [(b"content-type", b"image/jpeg")],
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
