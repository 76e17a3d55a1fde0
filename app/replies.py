"""How answers leave: whole JSON, JSON Lines, server-sent events, one image, a ZIP, multipart."""

import io
import secrets
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event

from app.answers import Answer, EncodedImage
from app.gather import Work, all_answers, as_finished
from app.problems import answer as problem_response
from app.records import line, member, summary
from app.stages import Stages, server_timing
from models.errors import ServiceError
from models.schemas import ModelRecord, Record, Reply
from workers.filters import SPEC_VERSION

Present = Callable[[Answer], Record]
"""An answer as the record that is sent."""

PIECE = 1 << 20
"""Bytes of an answer that are sent at a time."""

JSON = "application/json"
JSON_LINES = ("application/x-ndjson", "application/jsonl")
EVENTS = "text/event-stream"
ZIP = "application/zip"
MULTIPART = "multipart/mixed"
STREAMS = (*JSON_LINES, EVENTS, ZIP, MULTIPART)


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
    records = [present(a) for a in answers]
    reply = Reply(model=model, results=records, summary=summary(records))
    timing = server_timing([intake, *(stages for a in answers for stages in a.all_stages)])
    body = reply.model_dump_json(exclude_none=True).encode()
    return _bytes(body, headers | {"Server-Timing": timing}, JSON)


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
            yield line(present(each))

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
            made = present(each)
            records.append(made)
            body = made.model_dump_json(exclude_none=True)
            yield format_sse_event(event="record", id=str(made.index), data_str=body)
        yield format_sse_event(event="summary", data_str=summary(records).model_dump_json())

    return StreamingResponse(
        _pieces(stream()), headers={**headers, "Cache-Control": "no-cache"}, media_type=EVENTS
    )


def streamed(
    request: Request,
    works: Sequence[Work],
    kind: str,
    present: Callable[..., Record],
    headers: dict[str, str],
    model: ModelRecord | None = None,
) -> Response:
    """One of STREAMS; images are inside the records as base64 where there is no better place."""
    if kind in (ZIP, MULTIPART):
        form = zipped if kind == ZIP else multipart
        return form(request, works, partial(present, named=True), headers)
    inline = partial(present, inline=True)
    if kind == EVENTS:
        return events(request, works, inline, headers, model)
    return json_lines(request, works, kind, inline, headers)


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


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[memoryview]:
    """A client that reads slowly holds its permit, not our memory, and has time for each piece."""
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            yield memoryview(chunk)[start : start + PIECE]


def zipped(
    request: Request, works: Sequence[Work], present: Present, headers: dict[str, str]
) -> Response:
    """A ZIP of the images as they finish, `results.jsonl` with every record last."""
    name = {"Content-Disposition": 'attachment; filename="darkroom.zip"'}
    archive = _zip(request, works, present)
    return StreamingResponse(_pieces(archive), headers=headers | name, media_type=ZIP)


async def _zip(request: Request, works: Sequence[Work], present: Present) -> AsyncIterator[bytes]:
    sink = _Sink()
    lines: dict[int, bytes] = {}
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        async for each in as_finished(request, works):
            lines[each.item.index] = line(present(each))
            for version, file in each.images:
                archive.writestr(member(each.item.index, file, version), file.data)
                yield sink.drain()
        archive.writestr("results.jsonl", b"".join(lines[n] for n in sorted(lines)))
    yield sink.drain()


def multipart(
    request: Request, works: Sequence[Work], present: Present, headers: dict[str, str]
) -> Response:
    """RFC 2046 multipart/mixed: records that are more than an image as JSON, and every image."""
    boundary = secrets.token_hex(16)

    def part(id_: str, kind: str, body: bytes, more: str = "") -> bytes:
        head = f"--{boundary}\r\nContent-ID: <{id_}>\r\nContent-Type: {kind}\r\n{more}\r\n"
        return head.encode() + body + b"\r\n"

    async def parts() -> AsyncIterator[bytes]:
        async for each in as_finished(request, works):
            index = each.item.index
            if not isinstance(each.outcome, EncodedImage):
                yield part(f"{index}", JSON, line(present(each)))
            for version, file in each.images:
                id_ = f"{index}" if version is None else f"{index}.{version}"
                name = member(index, file, version)
                named = f'Content-Disposition: attachment; filename="{name}"\r\n'
                yield part(id_, file.format.media_type, file.data, named)
        yield f"--{boundary}--\r\n".encode()

    kind = f"{MULTIPART}; boundary={boundary}"
    return StreamingResponse(_pieces(parts()), headers=headers, media_type=kind)


def filter_headers() -> dict[str, str]:
    """What every answer with filtered images says: its definition, and that Accept was heard."""
    return {"X-Filter-Spec": str(SPEC_VERSION), "Vary": "Accept"}


def model_headers(model: ModelRecord) -> dict[str, str]:
    """What every answer with labels says: which weights gave them."""
    return {"X-Model": f"{model.name}; sha256={model.sha256}; labels={model.label_set}"}


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
