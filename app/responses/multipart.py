"""Answers as multipart/mixed (RFC 2046)."""

import secrets
from collections.abc import AsyncIterator, Sequence

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from app.http.media_types import JSON, MULTIPART
from app.pipeline.outcomes import EncodedImage
from app.responses.as_completed import StartWork, as_completed
from app.responses.pieces import pieces
from app.responses.records import Present, archive_name, line


def multipart(
    request: Request, works: Sequence[StartWork], present: Present, headers: dict[str, str]
) -> Response:
    """RFC 2046 multipart/mixed: records that are more than an image as JSON, and every image."""
    boundary = secrets.token_hex(16)

    def head(id_: str, kind: str, more: str = "") -> bytes:
        lines = f"Content-ID: <{id_}>\r\nContent-Type: {kind}\r\n{more}\r\n"
        return f"--{boundary}\r\n{lines}".encode()

    async def parts() -> AsyncIterator[bytes]:
        async for each in as_completed(request, works):
            index = each.item.index
            if not isinstance(each.outcome, EncodedImage):
                yield head(f"{index}", JSON) + line(present(each)) + b"\r\n"
            for version, file in each.images:
                id_ = f"{index}" if version is None else f"{index}.{version}"
                name = archive_name(index, file, version)
                named = f'Content-Disposition: attachment; filename="{name}"\r\n'
                yield head(id_, file.format.media_type, named)
                yield file.data
                yield b"\r\n"
        yield f"--{boundary}--\r\n".encode()

    kind = f"{MULTIPART}; boundary={boundary}"
    return StreamingResponse(pieces(parts()), headers=headers, media_type=kind)
