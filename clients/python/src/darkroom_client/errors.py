"""Errors: of a whole request as exceptions, of one image as the `Problem` of its result."""

from typing import Any

import msgspec


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """One wrong option: its path, what is wrong, and the given value."""

    path: str
    message: str
    given: Any = None


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Problem details (RFC 9457); `code` is stable, `detail` says what is wrong and what to do.

    `status` is an HTTP status, or 0 if the client itself found the problem.
    """

    code: str
    detail: str
    status: int = 0
    title: str = ""
    type: str = "about:blank"
    instance: str | None = None
    request_id: str | None = None
    item_index: int | None = None
    errors: list[FieldError] | None = None


class DarkroomError(Exception):
    """Base class of all errors of this package."""


class ImageError(DarkroomError):
    """One image failed; raised only by a caller who asks for what the image does not have."""

    def __init__(self, problem: Problem, source: str | None = None) -> None:
        super().__init__(f"{source}: {problem.detail}" if source else problem.detail)
        self.problem = problem
        self.source = source


class RequestError(DarkroomError):
    """The server refused a whole request; `request_id` finds it in the logs of the server."""

    def __init__(self, problem: Problem, request_id: str | None, tries: int = 1) -> None:
        found = problem.request_id or request_id
        after = f", {tries} tries" if tries > 1 else ""
        super().__init__(
            f"{problem.detail} ({problem.status} {problem.code}, request {found}{after})"
        )
        self.problem = problem
        self.request_id = found
        self.tries = tries


class InvalidRequest(RequestError):
    """An option is wrong, or there is nothing at the address (400, 404, 409, 422 and others)."""


class Unauthorized(RequestError):
    """The API key is missing, unknown or disabled (401 and 403)."""


class TooLarge(RequestError):
    """A body is over a limit of the server (413)."""


class Busy(RequestError):
    """The server still refused the request after the last try (429 and 503)."""


class ServerError(RequestError):
    """The server, or a proxy before it, failed (other statuses from 500 on)."""


class DeadlineExceeded(DarkroomError):
    """The deadline of the call passed before an answer came; `request_id` as in `RequestError`."""

    def __init__(self, detail: str, request_id: str | None = None) -> None:
        super().__init__(f"{detail} (request {request_id})" if request_id else detail)
        self.request_id = request_id


class ConnectionFailed(DarkroomError):
    """The server could not be reached, or the connection broke, also in the last try.

    `permanent` tells that another try does not help: the server's certificate is not trusted.
    """

    def __init__(
        self, detail: str, request_id: str | None = None, *, permanent: bool = False
    ) -> None:
        super().__init__(f"{detail} (request {request_id})" if request_id else detail)
        self.request_id = request_id
        self.permanent = permanent


class InvalidAnswer(DarkroomError):
    """The answer is not one of Darkroom: another program may listen at the address."""


def request_error(problem: Problem, request_id: str | None, tries: int) -> RequestError:
    """Return the exception for the problem of a whole request, by its status."""
    kind: type[RequestError] = InvalidRequest
    if problem.status in (401, 403):
        kind = Unauthorized
    elif problem.status == 413:
        kind = TooLarge
    elif problem.status in (429, 503):
        kind = Busy
    elif problem.status >= 500:
        kind = ServerError
    return kind(problem, request_id, tries)
