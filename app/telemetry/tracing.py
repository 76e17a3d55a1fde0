"""Traces by OpenTelemetry: where spans go, by the standard OTEL_… variables.

FastAPI makes the span of each request and joins `traceparent`. The spans below it, of images and
their stages, are made in `app/pipeline/spans.py`. Only the API of OpenTelemetry is always
installed; its SDK and the exporter come with the extra `otel`.
"""

import asyncio
import os
import threading
from importlib.util import find_spec

from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import TracerProvider

from models.version import VERSION

FAREWELL = 5.0
"""Seconds that a stopping server gives the exporter to send the last spans."""

_EXPORTER = "opentelemetry.exporter.otlp.proto.http"

HEALTH = frozenset(
    (
        *("/livez", "/readyz", "/startupz", "/health", "/healthz"),
        *("/v2/health/live", "/v2/health/ready"),
    )
)
"""The paths of health checks."""

QUIET = HEALTH | {"/metrics"}
"""Paths that are asked for all the time and have no spans."""

NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI looks for OpenTelemetry at each request, in 3 µs; Darkroom has metrics of its own."""


def check(tracing: bool) -> None:
    """Raise ValueError where there should be traces and cannot be.

    That is where the extra is missing, or another exporter or protocol is asked for than there is.
    """
    if not tracing:
        return
    try:
        found = find_spec("opentelemetry.sdk") and find_spec(_EXPORTER)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise ValueError(
            'DARKROOM_TRACING needs the extra `otel`: in a checkout run `pip install ".[otel]"`, '
            "or install requirements-extras.lock"
        )
    _chosen("OTEL_TRACES_EXPORTER", ("otlp", "none"))
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        _chosen(name, ("http/protobuf",))


def exporting_provider() -> TracerProvider:
    """Return a provider that sends spans by OTLP over HTTP, or none with OTEL_TRACES_EXPORTER=none.

    Raises ValueError as `check` does.
    """
    check(True)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider as ExportingProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ours = {SERVICE_NAME: "darkroom", SERVICE_VERSION: VERSION}
    given = dict(Resource.create().attributes)
    if str(given.get(SERVICE_NAME, "")).startswith("unknown_service"):
        del given[SERVICE_NAME]
    made = ExportingProvider(resource=Resource({**ours, **given}), shutdown_on_exit=False)
    if _chosen("OTEL_TRACES_EXPORTER", ("otlp", "none")) == "otlp":
        made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    provider: TracerProvider = made
    return provider


def telemetry_of(provider: TracerProvider | None) -> TelemetryConfig:
    """Return FastAPI's settings: with a `provider` it gives each request a span."""
    if provider is None:
        return NO_TELEMETRY
    return {
        "tracer_provider": provider,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
        "exclude": lambda scope: scope.get("path") in QUIET,
    }


async def send_last(provider: TracerProvider | None) -> None:
    """Send the last spans of a server that ends, for at most FAREWELL seconds.

    A thread of its own waits for an exporter that does not answer, and ends with the process.
    """
    shutdown = getattr(provider, "shutdown", None)  # a method of the SDK, not of the API
    if shutdown is not None:
        ending = threading.Thread(target=shutdown, name="traces", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, FAREWELL)


def _chosen(name: str, allowed: tuple[str, ...]) -> str:
    """Return the value of a variable, by default the first that is allowed."""
    value = os.environ.get(name, "").strip().lower() or allowed[0]
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
    return value
