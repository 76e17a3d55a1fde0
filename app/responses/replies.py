"""How answers leave: whole JSON, JSON Lines, server-sent events, one image, a ZIP, multipart."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event

from app.http.media_types import EVENTS, JSON, MULTIPART, ZIP
from app.http.problems import answer as problem_response
from app.pipeline.outcomes import Answer, EncodedImage, Processed
from app.pipeline.timings import Stages, server_timing
from app.responses.archive import stored
from app.responses.as_completed import Work, all_answers, as_finished
from app.responses.inline_images import InlineImages
from app.responses.records import line, member, summary
from models.api.schemas import ModelRecord, Record, Reply
from models.domain.errors import ServiceError
from models.domain.job import Labels
from workers.filters.base import SPEC_VERSION

Present = Callable[..., Record]
"""An answer as the record that is sent; takes `inline` for images inside, `named` for others."""

PIECE = 1 << 20
"""Bytes of an answer that are sent at a time."""

MANY_LABELS = 2000
"""Labels of one answer that are written on the event loop, in some milliseconds."""


async def whole(
    request: Request,
    works: Sequence[Work],
    intake: Stages,
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
    body = _pieces(_in_turns(inline.pieces(text)))
    sized = headers | {"Content-Length": str(size)}
    return StreamingResponse(body, headers=sized, media_type=JSON)


def _written(answers: list[Answer], present: Present, model: ModelRecord | None) -> bytes:
    records = [present(each) for each in answers]
    reply = Reply(model=model, results=records, summary=summary(records))
    return reply.model_dump_json(exclude_none=True).encode()


def _n_labels(answer: Answer) -> int:
    found = answer.outcome.labels if isinstance(answer.outcome, Processed) else answer.outcome
    return len(found.class_ids) if isinstance(found, Labels) else 0


async def _in_turns(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces, made one by one; the event loop turns between two of them."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def json_lines(
    request: Request,
    works: Sequence[Work],
    media_type: str,
    present: Present,
    headers: dict[str, str],
) -> Response:
    """One record a line, each as it finishes."""

    async def lines() -> AsyncIterator[bytes]:
        async for each in as_finished(request, works):
            inline = InlineImages()
            async for piece in _in_turns(inline.pieces(line(present(each, inline=inline)))):
                yield piece

    return StreamingResponse(_pieces(lines()), headers=headers, media_type=media_type)


def events(
    request: Request,
    works: Sequence[Work],
    present: Present,
    headers: dict[str, str],
    model: ModelRecord | None = None,
) -> Response:
    """Server-sent events: `model`, then a `record` as each finishes, last a `summary`."""

    async def stream() -> AsyncIterator[bytes]:
        records = []
        if model is not None:
            yield format_sse_event(event="model", data_str=model.model_dump_json())
        async for each in as_finished(request, works):
            inline = InlineImages()
            made = present(each, inline=inline)
            records.append(made)
            body = made.model_dump_json(exclude_none=True)
            event = format_sse_event(event="record", id=str(made.index), data_str=body)
            async for piece in _in_turns(inline.pieces(event)):
                yield piece
        yield format_sse_event(event="summary", data_str=summary(records).model_dump_json())

    return StreamingResponse(
        _pieces(stream()), headers={**headers, "Cache-Control": "no-cache"}, media_type=EVENTS
    )


def streamed(
    request: Request,
    works: Sequence[Work],
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


async def image(request: Request, work: Work, intake: Stages) -> Response:
    """One image in, one image out, as bytes."""
    (each,) = await all_answers(request, [work])
    if not isinstance(each.outcome, EncodedImage):
        assert isinstance(each.outcome, ServiceError)
        return problem_response(each.outcome, request)
    headers = filter_headers() | {"Server-Timing": server_timing([intake, each.stages])}
    return _bytes(each.outcome.data, headers, each.outcome.format.media_type)


def _bytes(data: bytes, headers: dict[str, str], media_type: str) -> Response:
    """In pieces where it is large."""
    if len(data) <= PIECE:
        return Response(data, headers=headers, media_type=media_type)

    async def alone() -> AsyncIterator[bytes]:
        yield data

    sized = headers | {"Content-Length": str(len(data))}
    return StreamingResponse(_pieces(alone()), headers=sized, media_type=media_type)


async def _pieces(chunks: AsyncIterator[bytes | memoryview]) -> AsyncIterator[memoryview]:
    """A client that reads slowly holds its permit, not our memory, and has time for each piece."""
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            yield memoryview(chunk)[start : start + PIECE]


def zipped(
    request: Request, works: Sequence[Work], present: Present, headers: dict[str, str]
) -> Response:
    """A ZIP of the images as they finish, `results.jsonl` with every record last."""
    name = {"Content-Disposition": 'attachment; filename="darkroom.zip"'}
    archive = stored(_members(request, works, present))
    return StreamingResponse(_pieces(archive), headers=headers | name, media_type=ZIP)


async def _members(
    request: Request, works: Sequence[Work], present: Present
) -> AsyncIterator[tuple[str, bytes]]:
    lines: dict[int, bytes] = {}
    async for each in as_finished(request, works):
        lines[each.item.index] = line(present(each))
        for version, file in each.images:
            yield member(each.item.index, file, version), file.data
    yield "results.jsonl", b"".join(lines[n] for n in sorted(lines))


def multipart(
    request: Request, works: Sequence[Work], present: Present, headers: dict[str, str]
) -> Response:
    """RFC 2046 multipart/mixed: records that are more than an image as JSON, and every image."""
    boundary = secrets.token_hex(16)

    def head(id_: str, kind: str, more: str = "") -> bytes:
        lines = f"Content-ID: <{id_}>\r\nContent-Type: {kind}\r\n{more}\r\n"
        return f"--{boundary}\r\n{lines}".encode()

    async def parts() -> AsyncIterator[bytes]:
        async for each in as_finished(request, works):
            index = each.item.index
            if not isinstance(each.outcome, EncodedImage):
                yield head(f"{index}", JSON) + line(present(each)) + b"\r\n"
            for version, file in each.images:
                id_ = f"{index}" if version is None else f"{index}.{version}"
                name = member(index, file, version)
                named = f'Content-Disposition: attachment; filename="{name}"\r\n'
                yield head(id_, file.format.media_type, named)
                yield file.data
                yield b"\r\n"
        yield f"--{boundary}--\r\n".encode()

    kind = f"{MULTIPART}; boundary={boundary}"
    return StreamingResponse(_pieces(parts()), headers=headers, media_type=kind)


def filter_headers() -> dict[str, str]:
    """What every answer with filtered images says: its definition, and that Accept was heard."""
    return {"X-Filter-Spec": str(SPEC_VERSION), "Vary": "Accept"}


def model_headers(model: ModelRecord) -> dict[str, str]:
    """What every answer with labels says: which weights gave them."""
    return {"X-Model": f"{model.name}; sha256={model.sha256}; labels={model.label_set}"}
