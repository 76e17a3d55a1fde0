"""How answers leave: whole JSON, JSON Lines, server-sent events, one image, a ZIP, multipart."""

import asyncio
from collections.abc import Sequence
from functools import partial

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from app.http.media_types import JSON
from app.http.problems import answer as problem_response
from app.pipeline.outcomes import Answer, EncodedImage, Processed
from app.pipeline.timings import Timings, server_timing
from app.responses.as_completed import StartWork, all_answers
from app.responses.inline_images import InlineImages
from app.responses.pieces import PIECE, in_turns, pieces, sized
from app.responses.records import Present, summary
from models.api.schemas import ModelRecord, Reply
from models.domain.errors import ServiceError
from models.domain.job import Labels
from workers.filters.base import SPEC_VERSION

MANY_LABELS = 2000
"""Labels of one answer that are written on the event loop, in some milliseconds."""


async def whole(
    request: Request,
    works: Sequence[StartWork],
    intake: Timings,
    present: Present,
    headers: dict[str, str],
    model: ModelRecord | None,
) -> Response:
    """The whole reply as JSON; one image that fails answers with its own status."""
    answers = await all_answers(request, works)
    if len(answers) == 1 and isinstance(answers[0].outcome, ServiceError):
        return problem_response(answers[0].outcome, request)
    inline = InlineImages()
    large = sum(_n_labels(each) for each in answers) > MANY_LABELS
    write = partial(_written, answers, partial(present, inline=inline), model)
    text = await asyncio.to_thread(write) if large else write()
    timing = server_timing([intake, *(stages for a in answers for stages in a.all_stages)])
    headers = headers | {"Server-Timing": timing}
    if (size := inline.size(text)) <= PIECE:
        return Response(b"".join(inline.pieces(text)), headers=headers, media_type=JSON)
    body = pieces(in_turns(inline.pieces(text)))
    sized = headers | {"Content-Length": str(size)}
    return StreamingResponse(body, headers=sized, media_type=JSON)


def _written(answers: list[Answer], present: Present, model: ModelRecord | None) -> bytes:
    records = [present(each) for each in answers]
    reply = Reply(model=model, results=records, summary=summary(records))
    return reply.model_dump_json(exclude_none=True).encode()


def _n_labels(answer: Answer) -> int:
    found = answer.outcome.labels if isinstance(answer.outcome, Processed) else answer.outcome
    return len(found.class_ids) if isinstance(found, Labels) else 0


async def image(request: Request, work: StartWork, intake: Timings) -> Response:
    """One image in, one image out, as bytes."""
    (each,) = await all_answers(request, [work])
    if not isinstance(each.outcome, EncodedImage):
        assert isinstance(each.outcome, ServiceError)
        return problem_response(each.outcome, request)
    headers = filter_headers() | {"Server-Timing": server_timing([intake, each.stages])}
    return sized(each.outcome.data, headers, each.outcome.format.media_type)


def filter_headers() -> dict[str, str]:
    """What every answer with filtered images says: its definition, and that Accept was heard."""
    return {"X-Filter-Spec": str(SPEC_VERSION), "Vary": "Accept"}


def model_headers(model: ModelRecord) -> dict[str, str]:
    """What every answer with labels says: which weights gave them."""
    return {"X-Model": f"{model.name}; sha256={model.sha256}; labels={model.label_set}"}
