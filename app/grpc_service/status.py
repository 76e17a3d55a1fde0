"""Convert errors to status codes of gRPC, and say when to try again.

Source: https://grpc.io/docs/guides/status-codes/ and https://github.com/grpc/proposal/blob/master/A6-client-retries.md.
"""

from dataclasses import dataclass

import grpc

from app.grpc_service.messages import message_class
from app.http.problems import retry_after, shortened
from models.domain.errors import Overloaded, ServiceError

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
    def of(cls, error: ServiceError, detail: str | None = None) -> "Refusal":
        """Return the refusal for an error, perhaps with another text."""
        code = _CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT)
        if isinstance(error, Overloaded):
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        text = error.detail if detail is None else detail
        return cls(code, shortened(text, LONGEST_DETAIL), retry_after(error))

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
