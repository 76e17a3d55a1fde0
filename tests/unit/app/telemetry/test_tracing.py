"""Where traces go, and what is refused at the start."""

import asyncio
import threading

import pytest

from app.telemetry import tracing
from app.telemetry.tracing import check, send_last

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
)
def test_an_exporter_that_is_not_there_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} is '{value}'; allowed: "):
        check(True)
    check(False)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"\.\[otel\]"):
        check(True)


def test_the_service_is_called_darkroom_unless_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    def name() -> object:
        provider = tracing.exporting_provider()
        assert isinstance(provider, TracerProvider)
        return provider.resource.attributes["service.name"]

    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert name() == "darkroom"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pictures")
    assert name() == "pictures"


def test_an_exporter_that_does_not_answer_does_not_keep_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from opentelemetry.trace import NoOpTracerProvider

    class Stuck(NoOpTracerProvider):
        def shutdown(self) -> None:
            released.wait()

    released = threading.Event()
    monkeypatch.setattr(tracing, "FAREWELL", 0.01)
    try:
        asyncio.run(send_last(Stuck()))
    finally:
        released.set()
