"""Remember refusals for milliseconds: a flood repeats the same request, and so does its answer.

A request that comes too late by some hundredths of a second is too late for as long, because
admitted work takes its time. Meanwhile admission need not be asked again for the same client,
target and deadline, and the answer is made of bytes that were prepared for the first one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from app.connections.early_answer import EarlyAnswer
from app.http import problems
from app.http.media_types import JSON
from models.domain.errors import Overloaded, ServiceError

LONGEST = 0.05
"""Seconds for which a refusal is repeated at most, because a client that leaves makes room."""

MOST = 256
"""Refusals that are remembered; clients name the targets, so their number must be bounded."""

LARGEST = 512
"""Characters and bytes of a request that is remembered: clients choose its query and headers."""

Request = tuple[str | bytes | None, ...]
"""What equal requests have in common: client, path, query, deadline and media type."""

ID_LENGTH = 32
"""Characters of the request ids that the server makes."""

_ID = "0" * ID_LENGTH


@dataclass(frozen=True, slots=True)
class PreparedRefusal:
    """The answer to one kind of request without its id; it is repeated `until` a moment.

    `count` counts it and takes the seconds that it took.
    """

    error: ServiceError
    until: float
    count: Callable[[float], None]
    _headers: list[bytes]
    _body: list[bytes]
    """What stands before and after the id; a body of the Open Inference Protocol has none."""

    @classmethod
    def of(
        cls, error: ServiceError, path: str, until: float, count: Callable[[float], None]
    ) -> "PreparedRefusal":
        """Prepare the application's answer, byte for byte, for a request to `path`."""
        whole = answer(error, path, _ID)
        return cls(error, until, count, _cut(whole.headers), _cut(whole.body))

    def answer(self, request_id: str) -> EarlyAnswer:
        """Return the answer to the request with an id of `ID_LENGTH` letters and digits."""
        id_ = request_id.encode()
        return EarlyAnswer(self.error.status, id_.join(self._headers), id_.join(self._body))


class RecentRefusals:
    """The refusals that are repeated at this moment."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._prepared: dict[Request, PreparedRefusal] = {}

    def of(self, request: Request) -> PreparedRefusal | None:
        """Return the refusal that is repeated for equal requests, None if there is none."""
        found = self._prepared.get(request)
        if found is not None and self._clock() >= found.until:
            del self._prepared[request]
            return None
        return found

    def note(
        self, request: Request, error: ServiceError, path: str, count: Callable[[float], None]
    ) -> PreparedRefusal:
        """Prepare a refusal; remember it as long as the same request would come too late."""
        lasts = min(LONGEST, error.lasts) if isinstance(error, Overloaded) else 0.0
        prepared = PreparedRefusal.of(error, path, self._clock() + lasts, count)
        if lasts > 0:
            if len(self._prepared) >= MOST:
                self._prepared.clear()
            if _size(request) <= LARGEST:
                self._prepared[request] = prepared
        return prepared


def answer(error: ServiceError, path: str, request_id: str) -> EarlyAnswer:
    """Return the bytes of the application's answer, in the same order as `problems.answer`."""
    media_type = problems.MEDIA_TYPE
    problem: dict[str, object] = {
        "type": problems.TYPE_PREFIX + error.code,
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "instance": path,
        "request_id": request_id,
    }
    if path.startswith(problems.INFERENCE + "/"):
        problem, media_type = {"error": error.detail}, JSON
    body = json.dumps(problem, ensure_ascii=False, separators=(",", ":")).encode()
    headers = (
        f"retry-after: {problems.retry_after(error)}\r\ncontent-length: {len(body)}\r\n"
        f"content-type: {media_type}\r\nx-request-id: {request_id}\r\n"
        "x-content-type-options: nosniff\r\n"
    )
    return EarlyAnswer(error.status, headers.encode("latin-1"), body)


def _size(request: Request) -> int:
    return sum(len(part) for part in request if part is not None)


def _cut(data: bytes) -> list[bytes]:
    """Return what stands before and after the id; the id is the last thing that looks like it."""
    return data.rsplit(_ID.encode(), 1)
