"""Answers that are sent when all work is done: the JSON of all records, or one image's bytes."""

import asyncio

from fastapi.responses import Response

from app.http.media_types import JSON
from app.http.problems import answer as problem_response
from app.pipeline.results.outcomes import Answer, EncodedImage, Processed
from app.pipeline.results.timings import server_timing
from app.responses.body import PIECE, StreamedBody, in_turns, whole_body
from app.responses.inline_images import InlineImages
from app.responses.records import summary
from app.responses.rendering import Answers, Rendering
from models.api.schemas import Reply
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector

MANY_LABELS = 2000
"""Labels, or values of vectors, of one answer that are written on the event loop.

That takes some milliseconds."""


async def json_reply(answers: Answers, rendering: Rendering) -> Response:
    """Return all records as one JSON object, in the order of the images.

    One image that fails is answered with the status of its own error.
    """
    found = sorted([each async for each in answers], key=lambda each: each.item.index)
    if len(found) == 1 and isinstance(found[0].outcome, ServiceError):
        return problem_response(found[0].outcome, rendering.request)
    inline = InlineImages()
    large = sum(_n_labels(each) for each in found) > MANY_LABELS
    if large:
        text = await asyncio.to_thread(_written, found, rendering, inline)
    else:
        text = _written(found, rendering, inline)
    timing = server_timing([rendering.intake, *(t for each in found for t in each.all_stages)])
    headers = rendering.headers | {"Server-Timing": timing}
    if not any(_failed(each) for each in found):
        headers |= rendering.good_headers
    if (size := inline.size(text)) <= PIECE:
        return Response(b"".join(inline.pieces(text)), headers=headers, media_type=JSON)
    sized = headers | {"Content-Length": str(size)}
    return StreamedBody(in_turns(inline.pieces(text)), sized, JSON)


async def image_reply(answers: Answers, rendering: Rendering) -> Response:
    """Return the bytes of the only image, or its error."""
    (found,) = [each async for each in answers]
    if not isinstance(found.outcome, EncodedImage):
        assert isinstance(found.outcome, ServiceError)
        return problem_response(found.outcome, rendering.request)
    timing = server_timing([rendering.intake, found.stages])
    headers = {**rendering.headers, "Server-Timing": timing, **rendering.good_headers}
    return whole_body(found.outcome.file, headers, found.outcome.format.media_type)


def _failed(answer: Answer) -> bool:
    """Return whether an answer is an error, or has one in a part."""
    outcome = answer.outcome
    return isinstance(outcome, ServiceError) or (
        isinstance(outcome, Processed) and bool(outcome.errors)
    )


def _written(found: list[Answer], rendering: Rendering, inline: InlineImages) -> bytes:
    records = [rendering.record(each, inline=inline) for each in found]
    reply = Reply(model=rendering.model, results=records, summary=summary(records))
    return reply.model_dump_json(exclude_none=True).encode()


def _n_labels(answer: Answer) -> int:
    found = answer.outcome.labels if isinstance(answer.outcome, Processed) else answer.outcome
    if isinstance(found, Vector):
        return len(found.values)
    return len(found.class_ids) if isinstance(found, Labels) else 0
