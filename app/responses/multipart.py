"""Answers as multipart/mixed (RFC 2046, section 5.1.3)."""

from urllib.parse import quote

from app.http.media_types import JSON
from app.pipeline.results.outcomes import EncodedImage
from app.responses.body import Body, pieces_of
from app.responses.records import file_name, line
from app.responses.rendering import Answers, Rendering


async def parts(answers: Answers, rendering: Rendering, boundary: str) -> Body:
    """Yield records that are more than an image as JSON, and every image as a part of its own."""
    async for each in answers:
        index = each.item.index
        stem = rendering.names[index]
        if not isinstance(each.outcome, EncodedImage):
            record = line(rendering.record(each, name=stem))
            yield _head(boundary, f"{index}", JSON) + record + b"\r\n"
        for version, file in each.images:
            id_ = f"{index}" if version is None else f"{index}.{version}"
            named = _disposition(file_name(stem, file, version))
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
