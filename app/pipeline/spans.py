"""Spans of images and their stages, made when an image is done from the times that were measured.

The span of an image is a child of its request's span, and each stage is a child of its image, or of
the version that it belongs to. The stages of the worker name the micro-batch: its id is the one
of a worker, so images with the same id were computed together.
"""

import time

from opentelemetry.trace import Span, StatusCode, Tracer, TracerProvider, set_span_in_context

from app.pipeline.outcomes import Answer, Processed, Timings
from models.domain.errors import ServiceError
from models.version import VERSION

Value = str | int | float | bool

ON_WORKER = ("queue", "upload", "compute", "download")
"""Stages that belong to a micro-batch."""


class Spans:
    """Maker of the spans below those of requests; `provider` receives them."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Tracer = provider.get_tracer("darkroom", VERSION)

    def stages(self, timings: Timings, parent: Span | None = None) -> None:
        """Make a span for each stage, below `parent` or the current span."""
        context = None if parent is None else set_span_in_context(parent)
        epoch = time.time_ns() - time.monotonic_ns()
        for stage, start, end in timings.all_marks:
            span = self._tracer.start_span(
                stage,
                context,
                attributes=timings.batch_attributes if stage in ON_WORKER else None,
                start_time=epoch + int(start * 1e9),
            )
            span.end(epoch + int(end * 1e9))

    def image(self, operation: str, answer: Answer, began: float) -> None:
        """Make the spans of an image that began at the moment `began` and is done now."""
        epoch = time.time_ns() - time.monotonic_ns()
        start = epoch + int(began * 1e9)
        about: dict[str, Value] = {
            "darkroom.operation": operation,
            "darkroom.image.index": answer.item.index,
        }
        if answer.stages.reused:
            about["darkroom.result"] = answer.stages.reused
        span = self._tracer.start_span("image", attributes=about, start_time=start)
        outcome = answer.outcome
        if isinstance(outcome, ServiceError):
            _fail(span, outcome)
        self.stages(answer.stages, span)
        for number, each in enumerate(outcome.versions if isinstance(outcome, Processed) else ()):
            below = set_span_in_context(span)
            first = min((mark[1] for mark in each.stages.all_marks), default=began)
            version = self._tracer.start_span(
                "version",
                below,
                attributes={"darkroom.version.index": number},
                start_time=epoch + int(first * 1e9),
            )
            if isinstance(each.outcome, ServiceError):
                _fail(version, each.outcome)
            self.stages(each.stages, version)
            version.end()
        span.end()


def _fail(span: Span, error: ServiceError) -> None:
    """Note an error; only faults of the server are failures of the span, as for requests."""
    span.set_attribute("error.type", error.code)
    if error.status >= 500:
        span.set_status(StatusCode.ERROR, error.title)
