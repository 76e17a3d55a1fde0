"""Write the answers that a connection sends itself, before there is a request."""

from email.utils import formatdate
from http import HTTPStatus

from app.http.problems import MEDIA_TYPE, problem, retry_after
from models.domain.errors import ServiceError


def refusal(error: ServiceError) -> bytes:
    """Return a complete HTTP/1.1 answer, after which the connection must be closed."""
    body = problem(error).model_dump_json(exclude_none=True).encode()
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        f"date: {formatdate(usegmt=True)}",
        f"content-type: {MEDIA_TYPE}",
        f"content-length: {len(body)}",
        "x-content-type-options: nosniff",
        "connection: close",
    ]
    if seconds := retry_after(error):
        lines.append(f"retry-after: {seconds}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
