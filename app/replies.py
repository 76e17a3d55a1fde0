"""How answers leave: whole JSON, JSON Lines, server-sent events, one image, a ZIP, multipart."""

import asyncio
import io
import secrets
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event

from app.pipeline import Answer, EncodedImage
from app.problems import answer as problem_response
from app.records import line, record, summary
from app.scope import disconnected, until_disconnect
from app.stages import Stages, server_timing
from models.errors import ServiceError
from models.labels import LabelSet
from models.schemas import ClassifyReply, ModelRecord, Record
from workers.filters import SPEC_VERSION

Work = Callable[[], Coroutine[Any, Any, Answer]]
"""Starts the work on one item; called only once somebody listens."""

JSON_LINES = ("application/x-ndjson", "application/jsonl")
EVENTS = "text/event-stream"
ZIP = "application/zip"
MULTIPART = "multipart/mixed"


async def all_answers(request: Request, works: Sequence[Work]) -> list[Answer]:
    """Every answer, in input order; the work ends early when the client leaves."""

    async def together() -> list[Answer]:
        return await asyncio.gather(*(work() for work in works))

    return await until_disconnect(request, together())


async def as_finished(request: Request, works: Sequence[Work]) -> AsyncIterator[Answer]:
    """Each answer as it finishes; the work ends early when the client leaves."""
    watch = asyncio.ensure_future(disconnected(request))
    pending = {asyncio.ensure_future(work()) for work in works}
    try:
        while pending and not watch.done():
            waited_for: set[asyncio.Future[Any]] = {*pending, watch}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in pending if each.done()]:
                pending.discard(task)
                yield task.result()
    finally:
        for left in (watch, *pending):
            left.cancel()
        await asyncio.gather(watch, *pending, return_exceptions=True)


async def labels_json(
    request: Request, works: Sequence[Work], intake: Stages, model: ModelRecord, labels: LabelSet
) -> Response:
    """The whole reply; one image that fails answers with its own status."""
    answers = await all_answers(request, works)
    if len(answers) == 1 and isinstance(answers[0].outcome, ServiceError):
        return problem_response(answers[0].outcome, request)
    records = [record(a, labels, request) for a in answers]
    reply = ClassifyReply(model=model, results=records, summary=summary(records))
    return Response(
        reply.model_dump_json(exclude_none=True),
        headers={"Server-Timing": server_timing([intake, *(a.stages for a in answers)])},
        media_type="application/json",
    )


def json_lines(
    request: Request,
    works: Sequence[Work],
    media_type: str,
    present: Callable[[Answer], Record],
    headers: dict[str, str],
) -> Response:
    """One record a line, each as it finishes."""

    async def lines() -> AsyncIterator[bytes]:
        async for each in as_finished(request, works):
            yield line(present(each))

    return StreamingResponse(lines(), headers=headers, media_type=media_type)


def events(
    request: Request,
    works: Sequence[Work],
    present: Callable[[Answer], Record],
    headers: dict[str, str],
    model: ModelRecord | None = None,
) -> Response:
    """Server-sent events: `model`, then a `record` as each finishes, last a `summary`."""

    async def stream() -> AsyncIterator[bytes]:
        records = []
        if model is not None:
            yield format_sse_event(event="model", data_str=model.model_dump_json())
        async for each in as_finished(request, works):
            made = present(each)
            records.append(made)
            body = made.model_dump_json(exclude_none=True)
            yield format_sse_event(event="record", id=str(made.index), data_str=body)
        yield format_sse_event(event="summary", data_str=summary(records).model_dump_json())

    return StreamingResponse(
        stream(), headers={**headers, "Cache-Control": "no-cache"}, media_type=EVENTS
    )


async def image(request: Request, work: Work, intake: Stages) -> Response:
    """One image in, one image out, as bytes."""
    (each,) = await all_answers(request, [work])
    if not isinstance(each.outcome, EncodedImage):
        assert isinstance(each.outcome, ServiceError)
        return problem_response(each.outcome, request)
    headers = filter_headers() | {"Server-Timing": server_timing([intake, each.stages])}
    return Response(each.outcome.data, headers=headers, media_type=each.outcome.format.media_type)


def zipped(request: Request, works: Sequence[Work]) -> Response:
    """A ZIP of the images as they finish, `results.jsonl` with every record last."""
    headers = filter_headers() | {"Content-Disposition": 'attachment; filename="darkroom.zip"'}
    return StreamingResponse(_zip(request, works), headers=headers, media_type=ZIP)


async def _zip(request: Request, works: Sequence[Work]) -> AsyncIterator[bytes]:
    sink = _Sink()
    lines: dict[int, bytes] = {}
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        async for each in as_finished(request, works):
            name = _member(each)
            lines[each.item.index] = line(record(each, request=request, member=name))
            if name is not None and isinstance(each.outcome, EncodedImage):
                archive.writestr(name, each.outcome.data)
                yield sink.drain()
        archive.writestr("results.jsonl", b"".join(lines[n] for n in sorted(lines)))
    yield sink.drain()


def multipart(request: Request, works: Sequence[Work]) -> Response:
    """RFC 2046 multipart/mixed: each image, or its record as JSON where it failed."""
    boundary = secrets.token_hex(16)

    async def parts() -> AsyncIterator[bytes]:
        async for each in as_finished(request, works):
            outcome = each.outcome
            head = f"--{boundary}\r\nContent-ID: <{each.item.index}>\r\n"
            if isinstance(outcome, EncodedImage):
                kind, body = outcome.format.media_type, outcome.data
            else:
                kind, body = "application/json", line(record(each, request=request))
            yield f"{head}Content-Type: {kind}\r\n\r\n".encode() + body + b"\r\n"
        yield f"--{boundary}--\r\n".encode()

    kind = f"{MULTIPART}; boundary={boundary}"
    return StreamingResponse(parts(), headers=filter_headers(), media_type=kind)


def filter_headers() -> dict[str, str]:
    """What every answer of /filter says: its definition, and that Accept was heard."""
    return {"X-Filter-Spec": str(SPEC_VERSION), "Vary": "Accept"}


def _member(each: Answer) -> str | None:
    """A safe, unique name in the archive: the index, never the client's path."""
    if not isinstance(each.outcome, EncodedImage):
        return None
    return f"{each.item.index:04d}{each.outcome.format.extension}"


class _Sink(io.RawIOBase):
    """What zipfile writes to: unseekable, handed on and forgotten after each member."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(bytes(data))
        return len(data)

    def drain(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)
