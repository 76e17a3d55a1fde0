"""Make the response of a request from its answers, in the form that was negotiated."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

import msgspec
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.archives.zip_writer import ZipWriter
from app.http.negotiation import EVENTS, IMAGE, JSON, MULTIPART, ZIP
from app.http.problems import answer as problem_response
from app.http.request import Departure
from app.pipeline.encoded_files import EncodedFile
from app.pipeline.outcomes import (
    Answer,
    EncodedImage,
    Processed,
    Timings,
    images_of,
    server_timing,
)
from app.responses import records
from app.responses.records import (
    NO_VECTORS,
    InlineImages,
    Record,
    VectorStyle,
    file_name,
    line,
    summary,
)
from models.domain.errors import Cancelled, ServiceError
from models.domain.job import Labels, Vector
from models.networks.served import Model

PIECE = 1 << 18
"""Largest number of bytes that are sent at a time. A connection whose client does not read buffers
about as much."""

Body = AsyncGenerator[bytes | memoryview, None]
"""The content of an answer, in chunks of any size."""


class Closing(Protocol):
    """The source of a body, which is closed after the body."""

    async def aclose(self) -> None:
        """Release the resources that are held."""


class StreamedBody(StreamingResponse):
    """A response whose content is generated while it is sent, in pieces of at most PIECE bytes.

    `source` yields the answers that the content is made of. It is closed when the sending ends, for
    whatever reason, so that no work continues for a client that has left; a `departure` that no
    route watches ends the sending. `counted` says that no work is left and that all its bytes are
    counted as unread, so that it needs no permit.
    """

    def __init__(
        self,
        content: Body,
        headers: Mapping[str, str],
        media_type: str,
        source: Closing | None = None,
        *,
        counted: bool = False,
        departure: Departure | None = None,
    ) -> None:
        self.pieces = _pieces(content)
        super().__init__(self.pieces, 200, headers, media_type)
        self.counted = counted
        self._source = source
        self._departure = departure or Departure()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the headers, then the content in pieces, as fast as the client reads them."""
        try:
            with self._departure:
                async with aclosing(self.pieces):
                    await self.stream_response(send)
        except Cancelled:  # the client has left, or it read so slowly that its answer was dropped
            raise ClientDisconnect from None
        finally:
            if self._source is not None:
                await self._source.aclose()


async def _pieces(content: Body) -> AsyncGenerator[bytes, None]:
    async with aclosing(content) as chunks:
        async for chunk in chunks:
            for start in range(0, len(chunk), PIECE):
                yield bytes(chunk[start : start + PIECE])


def sized(
    pieces: Iterable[bytes],
    size: int,
    headers: Mapping[str, str],
    media_type: str,
    *,
    counted: bool = False,
) -> Response:
    """Return a response of known length; large ones are sent in pieces."""
    if size <= PIECE:
        return Response(b"".join(pieces), headers=headers, media_type=media_type)
    known = {**headers, "Content-Length": str(size)}
    return StreamedBody(in_turns(pieces), known, media_type, counted=counted)


def pieces_of(file: EncodedFile) -> Iterator[bytes]:
    """Yield a file in pieces, each of which is read when it is needed."""
    for start in range(0, file.size, PIECE):
        yield file.read(start, PIECE)


async def in_turns(pieces: Iterable[bytes]) -> Body:
    """Yield pieces as they are made; other tasks of the event loop run between them."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


Answers = AsyncGenerator[Answer, None]
"""The answers of a request, each as it finishes; closing it ends the work."""


@dataclass(slots=True)
class Rendering:
    """The values with which the answers of a request are rendered.

    `scope` gives problems the path and the id of the request. `model` makes the labels, and is
    None where no labels are wanted; answers name its network if the request has `chosen` it.
    `intake` is the time that reading the request took.
    `vectors` says how logits and embeddings are written. `good_headers` are the headers that only
    whole answers without an error have, for example about caching. `names` are the names of the
    images in archives, without suffix.
    """

    scope: Scope
    headers: dict[str, str]
    intake: Timings
    model: Model | None = None
    chosen: bool = False
    vectors: VectorStyle = NO_VECTORS
    good_headers: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()

    def record(
        self, answer: Answer, *, name: str | None = None, inline: InlineImages | None = None
    ) -> Record:
        """Return an answer as a record; its images are files `name`, or added to `inline`."""
        labels = None if self.model is None else self.model.labels
        return records.record(
            answer, labels, self.scope, name=name, inline=inline, vectors=self.vectors
        )


def streamed(answers: Answers, form: str, rendering: Rendering) -> StreamedBody:
    """Return the response in the `form` of a stream, which takes the answers while it is sent."""
    headers, kind = dict(rendering.headers), form
    if form == ZIP:
        headers["Content-Disposition"] = 'attachment; filename="darkroom.zip"'
        content = stored(members(answers, rendering))
    elif form == MULTIPART:
        boundary = secrets.token_hex(16)
        kind = f"{MULTIPART}; boundary={boundary}"
        content = parts(answers, rendering, boundary)
    elif form == EVENTS:
        headers["Cache-Control"] = "no-cache"
        content = events(answers, rendering)
    else:
        content = json_lines(answers, rendering)
    return StreamedBody(content, headers, kind, source=answers)


MANY_LABELS = 2000
"""Labels, or values of vectors, of one answer that are written on the event loop.

That takes some milliseconds."""


async def whole_reply(found: list[Answer], form: str, rendering: Rendering) -> Response:
    """Return the bytes of the only image, or all records as JSON: `form` is IMAGE or JSON.

    A single image that fails is answered with the status of its own error.
    """
    first = found[0].outcome
    if len(found) == 1 and isinstance(first, ServiceError):
        return problem_response(first, rendering.scope)
    timing = server_timing([rendering.intake, *(t for each in found for t in each.all_stages)])
    headers = rendering.headers | {"Server-Timing": timing}
    if rendering.good_headers and not any(map(_failed, found)):
        headers |= rendering.good_headers
    if form == IMAGE and isinstance(first, EncodedImage):
        file, kind = first.file, first.format.media_type
        if first.quality is not None:
            headers["X-Quality"] = str(first.quality)
        return sized(pieces_of(file), file.size, headers, kind, counted=True)
    inline = InlineImages()
    if sum(map(_n_labels, found)) > MANY_LABELS:
        text = await asyncio.to_thread(_written, found, rendering, inline)
    else:
        text = _written(found, rendering, inline)
    return sized(inline.pieces(text), inline.size(text), headers, JSON)


def _failed(answer: Answer) -> bool:
    """Return whether an answer is an error, or has an error in a part."""
    outcome = answer.outcome
    return isinstance(outcome, ServiceError) or (
        isinstance(outcome, Processed) and bool(outcome.errors)
    )


def _written(found: list[Answer], rendering: Rendering, inline: InlineImages) -> bytes:
    records = [rendering.record(each, inline=inline) for each in found]
    reply: Record = {"results": records, "summary": summary(records)}
    if (model := rendering.model) is not None:
        reply = {"model": msgspec.Raw(model.json[rendering.chosen]), **reply}
    return msgspec.json.encode(reply)


def _n_labels(answer: Answer) -> int:
    found = answer.outcome.labels if isinstance(answer.outcome, Processed) else answer.outcome
    if isinstance(found, Vector):
        return len(found.values)
    return len(found.class_ids) if isinstance(found, Labels) else 0


async def json_lines(answers: Answers, rendering: Rendering) -> Body:
    """Yield a record a line, each as it finishes; images are inside as base64."""
    async for each in answers:
        inline = InlineImages()
        text = line(rendering.record(each, inline=inline))
        async for piece in in_turns(inline.pieces(text)):
            yield piece


async def events(answers: Answers, rendering: Rendering) -> Body:
    """Yield server-sent events: `model`, then a `record` as each finishes, last a `summary`."""
    records = []
    if rendering.model is not None:
        shown = rendering.model.record_for(rendering.chosen)
        yield format_sse_event(event="model", data_str=shown.model_dump_json())
    async for each in answers:
        inline = InlineImages()
        made = rendering.record(each, inline=inline)
        records.append(made)
        body = msgspec.json.encode(made).decode()
        event = format_sse_event(event="record", id=str(made["index"]), data_str=body)
        async for piece in in_turns(inline.pieces(event)):
            yield piece
    yield format_sse_event(event="summary", data_str=json.dumps(summary(records)))


async def stored(members: AsyncIterator[tuple[str, EncodedFile]]) -> Body:
    """Yield an uncompressed ZIP of members (name and content) in the order of their arrival."""
    with ZipWriter() as archive:
        async for name, content in members:
            yield archive.begin(name, content.size)
            for piece in pieces_of(content):
                archive.add(piece)
                yield piece
                await asyncio.sleep(0)
            yield archive.end()
        for piece in archive.finish():
            yield piece


async def members(answers: Answers, rendering: Rendering) -> AsyncIterator[tuple[str, EncodedFile]]:
    """Yield the images as they finish, by name; last `results.jsonl` with every record."""
    lines: dict[int, bytes] = {}
    async for each in answers:
        name = rendering.names[each.item.index]
        lines[each.item.index] = line(rendering.record(each, name=name))
        for version, file in images_of(each.outcome):
            yield file_name(name, file, version), file.file
    yield "results.jsonl", EncodedFile(b"".join(lines[n] for n in sorted(lines)))


async def parts(answers: Answers, rendering: Rendering, boundary: str) -> Body:
    """Yield records that are more than an image as JSON, and every image as a part of its own."""
    async for each in answers:
        index = each.item.index
        stem = rendering.names[index]
        if not isinstance(each.outcome, EncodedImage):
            record = line(rendering.record(each, name=stem))
            yield _head(boundary, f"{index}", JSON) + record + b"\r\n"
        for version, file in images_of(each.outcome):
            id_ = f"{index}" if version is None else f"{index}.{version}"
            named = _disposition(file_name(stem, file, version))
            if file.quality is not None:
                named += f"X-Quality: {file.quality}\r\n"
            yield _head(boundary, id_, file.format.media_type, named)
            for piece in pieces_of(file.file):
                yield piece
            yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()


def _disposition(name: str) -> str:
    """Return the header that names a file; other characters than ASCII by RFC 6266, section 4.3."""
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    more = "" if name.isascii() else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'Content-Disposition: attachment; filename="{plain}"{more}\r\n'


def _head(boundary: str, id_: str, kind: str, more: str = "") -> bytes:
    return f"--{boundary}\r\nContent-ID: <{id_}>\r\nContent-Type: {kind}\r\n{more}\r\n".encode()
