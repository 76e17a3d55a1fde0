"""A call as a request to an ASGI application: its scope, and its refusal as a status of gRPC.

Source: https://grpc.io/docs/guides/status-codes/ and
https://github.com/grpc/proposal/blob/master/A6-client-retries.md.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Scope

from app.admission.semaphore import FairSemaphore
from app.grpc_service.messages import message_class
from app.http.problems import retry_after, shortened
from app.http.request import DIGITS, HEADER
from models.domain.errors import Overloaded, ServiceError

SLOTS = "darkroom.slots"
REFUSAL = "darkroom.refusal"
"""Keys of a scope: the slots for arriving messages, and why the call has no answer."""

_DEADLINE = HEADER.lower().encode()

CONTENT_TYPE = b"application/grpc"

LATEST = 10**DIGITS - 1
"""Milliseconds of the latest deadline that a header can name; gRPC allows calls later ones."""

_OF_THE_CALL = ("content-type", "content-length")
"""Metadata that are not taken from a client, because a call has none of its own."""


def scope_of(path: str, context: Any, app: FastAPI, slots: FairSemaphore) -> Scope:
    """Return the scope of a call: its metadata are headers, and its deadline is a header too."""
    headers = [
        (key.encode(), value.encode() if isinstance(value, str) else value)
        for key, value in context.invocation_metadata() or ()
        if key not in _OF_THE_CALL
    ]
    return {
        "type": "http",
        "http_version": "2",
        "app": app,
        "method": "POST",
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "headers": [*_with_deadline(headers, context), (b"content-type", CONTENT_TYPE)],
        "client": client_of_peer(context.peer()),
        SLOTS: slots,
    }


def client_of_peer(peer: str) -> tuple[str, int] | None:
    """Return host and port of gRPC's name of a peer, `ipv4:127.0.0.1:80` or `ipv6:%5B::1%5D:80`."""
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return host.strip("[]"), int(port)


async def message_of(request: Request) -> bytes:
    """Return the message of a call, which the request does not keep."""
    return b"".join([each async for each in request.stream()])


def _with_deadline(headers: list[tuple[bytes, bytes]], context: Any) -> list[tuple[bytes, bytes]]:
    """Return headers whose deadline is the call's own, unless the metadata name an earlier
    deadline.
    """
    seconds = context.time_remaining()
    given = dict(headers).get(_DEADLINE)
    if seconds is None or (given is not None and not (given.isdigit() and len(given) <= DIGITS)):
        return headers  # a wrong header is refused as it is over HTTP
    milliseconds = min(max(1, int(seconds * 1000)), LATEST)
    if given is not None and int(given) <= milliseconds:
        return headers
    others = [each for each in headers if each[0] != _DEADLINE]
    return [*others, (_DEADLINE, str(milliseconds).encode())]


_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""Codes by the status that HTTP would have; all others mean that the request is wrong."""

LONGEST_DETAIL = 1000
"""Characters of a status, which stands in a header line of its own."""

Metadata = tuple[tuple[str, str | bytes], ...]

_Status, _RetryInfo = message_class("google.rpc.Status"), message_class("google.rpc.RetryInfo")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call has no answer; `seconds` later it may be tried again, None if that is useless."""

    code: grpc.StatusCode
    detail: str
    seconds: int | None = None

    @classmethod
    def of(cls, error: ServiceError) -> "Refusal":
        """Return the refusal for an error."""
        code = _CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT)
        if isinstance(error, Overloaded):
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        return cls(code, shortened(error.detail, LONGEST_DETAIL), retry_after(error))

    @property
    def metadata(self) -> Metadata:
        """Return the trailing metadata: when to try again, for people, clients and libraries."""
        if self.seconds is None:
            return ()
        delay = _RetryInfo()
        delay.retry_delay.seconds = self.seconds
        status = _Status(code=self.code.value[0], message=self.detail)
        status.details.add().Pack(delay)
        return (
            ("retry-after", str(self.seconds)),
            ("grpc-retry-pushback-ms", str(self.seconds * 1000)),
            ("grpc-status-details-bin", status.SerializeToString()),
        )


def refused(scope: Scope, refusal: Refusal, status: int) -> Response:
    """Note why a call is refused; return the answer that log and metrics see."""
    scope[REFUSAL] = refusal
    return Response(status_code=status)
