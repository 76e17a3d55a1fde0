"""The steps of an inference request after it was read; HTTP and gRPC share them."""

import time

from app.admission import Permit
from app.intake.inference.inference_request import InferenceRequest
from app.intake.inference.models import InferenceModel
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.pipeline.runner import Left
from app.responses.inference.inference_reply import InferenceStyle
from app.service import Service
from models.domain.deadline import Deadline
from models.networks.served import Model


async def answers_of(
    service: Service,
    permit: Permit,
    asked: InferenceRequest,
    began: float,
    gone: Left,
) -> list[Answer]:
    """Return the answers of all images in their order; `gone` returns when the client has left.

    The request's own timeout counts from when it `began`. Raises Overloaded.
    """
    if asked.timeout is not None:
        permit.deadline = min(permit.deadline, Deadline.after(asked.timeout, began), key=_moment)
    permit.expect(asked.images.kinds, asked.images.sizes(service.settings.max_pixels))
    answers = service.pipeline.answers(asked.images, permit, gone)
    return sorted([each async for each in answers], key=lambda each: each.item.index)


def style_of(
    model: InferenceModel, weights: Model, asked: InferenceRequest, intake: Timings, accepts: str
) -> InferenceStyle:
    """Return how the answer is written; `accepts` is the header Accept-Encoding."""
    return InferenceStyle(
        model.name,
        model.version,
        weights.record,
        weights.labels,
        model.width,
        asked.outputs,
        asked.takes_errors,
        asked.id,
        intake,
        accepts,
    )


def note(
    service: Service, model: InferenceModel, began: float, found: list[Answer], *, failed: bool
) -> None:
    """Count a request in the statistics of its model."""
    traces = [each.stages.trace for each in found]
    service.inference.note(model.name, time.monotonic() - began, traces, failed=failed)


def _moment(deadline: Deadline) -> float:
    return deadline.at
