"""Answers as they finish: JSON Lines, server-sent events, and the choice among all forms of
streams.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event

from app.http.media_types import EVENTS, MULTIPART, ZIP
from app.responses.archive import zipped
from app.responses.as_completed import StartWork, as_completed
from app.responses.inline_images import InlineImages
from app.responses.multipart import multipart
from app.responses.pieces import in_turns, pieces
from app.responses.records import Present, line, summary
from models.api.schemas import ModelRecord


def json_lines(
    request: Request,
    works: Sequence[StartWork],
    media_type: str,
    present: Present,
    headers: dict[str, str],
) -> Response:
    """One record a line, each as it finishes."""

    async def lines() -> AsyncIterator[bytes]:
        async for each in as_completed(request, works):
            inline = InlineImages()
            async for piece in in_turns(inline.pieces(line(present(each, inline=inline)))):
                yield piece

    return StreamingResponse(pieces(lines()), headers=headers, media_type=media_type)


def events(
    request: Request,
    works: Sequence[StartWork],
    present: Present,
    headers: dict[str, str],
    model: ModelRecord | None = None,
) -> Response:
    """Server-sent events: `model`, then a `record` as each finishes, last a `summary`."""

    async def stream() -> AsyncIterator[bytes]:
        records = []
        if model is not None:
            yield format_sse_event(event="model", data_str=model.model_dump_json())
        async for each in as_completed(request, works):
            inline = InlineImages()
            made = present(each, inline=inline)
            records.append(made)
            body = made.model_dump_json(exclude_none=True)
            event = format_sse_event(event="record", id=str(made.index), data_str=body)
            async for piece in in_turns(inline.pieces(event)):
                yield piece
        yield format_sse_event(event="summary", data_str=summary(records).model_dump_json())

    return StreamingResponse(
        pieces(stream()), headers={**headers, "Cache-Control": "no-cache"}, media_type=EVENTS
    )


def streamed(
    request: Request,
    works: Sequence[StartWork],
    kind: str,
    present: Present,
    headers: dict[str, str],
    model: ModelRecord | None = None,
) -> Response:
    """One of STREAMS; images are inside the records as base64 where there is no better place."""
    if kind in (ZIP, MULTIPART):
        form = zipped if kind == ZIP else multipart
        return form(request, works, partial(present, named=True), headers)
    if kind == EVENTS:
        return events(request, works, present, headers, model)
    return json_lines(request, works, kind, present, headers)
