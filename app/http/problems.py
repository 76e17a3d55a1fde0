"""Convert errors to problem details (RFC 9457), the form in which errors are answered.

Only the Open Inference Protocol has another form, which is made here too. The options of a request
are validated by the models that declare them, so that all their errors are answered at once.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from models.domain.errors import (
    FieldError,
    InvalidParameter,
    ServiceError,
    Unauthorized,
    UnsupportedCoding,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:darkroom:problem:"

EVERY_ANSWER = ((b"x-content-type-options", b"nosniff"),)
"""Headers that every answer has, also a refusal by a connection; not those of the metrics port."""

METHODS = ("DELETE", "GET", "POST")
"""The methods that routes take; each path that takes GET takes HEAD, too."""

ERROR = "error"
"""The key of a scope, if it has the key, under which the error of the answer stands; an error that
stands there before is the answer. The scope of a connection has no such key: an idle connection
would keep thousands of wrong fields."""

INFERENCE = "/v2"
"""The path of the Open Inference Protocol, whose errors are `{"error": "…"}`."""

MOST_ERRORS = 20
"""Largest number of wrong fields that one problem lists."""

LONGEST_GIVEN = 200
"""Largest number of characters of a given value, of a path and of an instance."""

LONGEST_NAME = 60
"""Characters of a name that a client gave which a message repeats."""

LONGEST_MESSAGE = 1000
"""Largest number of characters of a message."""

MOST_TEXT = 12_000
"""Largest number of characters of all errors; as JSON each may take six bytes, so that no answer
reaches 100 kB."""

_LARGEST = 10**40
"""Larger whole numbers are repeated as text, because they may have thousands of digits."""

HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
"""Codes of errors that the framework finds, by status; `docs/errors.md` lists them too."""

OTHER_CODE = "http_error"
"""The code of every other error of the framework."""


def problem(
    error: ServiceError, scope: Scope | None = None, index: int | None = None
) -> dict[str, Any]:
    """Return the public form of an error, that of `models.api.schemas.Problem`.

    `scope` gives the path and the id of the request, `index` its item.
    """
    found: dict[str, Any] = {
        "type": TYPE_PREFIX + error.code,
        "title": error.title,
        "status": error.status,
        "detail": shortened(error.detail, LONGEST_MESSAGE),
        "code": error.code,
    }
    if scope is not None:
        found["instance"] = shortened(scope["path"], LONGEST_GIVEN)
        if "request_id" in scope:
            found["request_id"] = scope["request_id"]
    if index is not None:
        found["item_index"] = index
    if told := _told(error.errors):
        found["errors"] = told
    return found


def answer(error: ServiceError, scope: Scope | None = None) -> Response:
    """Return an error as a response, with `Retry-After` if the client may try again.

    There is no `scope` where the connection refuses to read the request.
    """
    if scope is not None and ERROR in scope:
        scope[ERROR] = error
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="darkroom"'
    if isinstance(error, UnsupportedCoding):
        headers["Accept-Encoding"] = "gzip, deflate"
    if seconds := retry_after(error):
        headers["Retry-After"] = str(seconds)
    if scope is not None and is_inference(scope["path"]):
        told = {"error": shortened(error.detail, LONGEST_MESSAGE)}
        return JSONResponse(told, error.status, headers)
    return Response(msgspec.json.encode(problem(error, scope)), error.status, headers, MEDIA_TYPE)


def answer_to(error: Exception, scope: Scope) -> Response | None:
    """Return the answer to an error that an endpoint or the framework raises; None to a fault."""
    if isinstance(error, ServiceError):
        return answer(error, scope)
    if not isinstance(error, HTTPException):
        return None
    headers, path = dict(error.headers or {}), shortened(scope["path"], LONGEST_GIVEN)
    status, detail = error.status_code, str(error.detail)
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(allowed(scope)).replace("GET", "GET, HEAD")
        detail = f"{path} takes {headers['Allow']}"
    elif status == HTTPStatus.NOT_FOUND and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = f"there is no {path}; GET / shows what there is"
    code = HTTP_CODES.get(status, OTHER_CODE)
    same = {"status": status, "code": code, "title": HTTPStatus(status).phrase}
    response = answer(type("HttpError", (ServiceError,), same)(detail), scope)
    response.headers.update(headers)
    return response


def is_inference(path: str) -> bool:
    """Return whether a path is of the Open Inference Protocol, with errors of its own."""
    return path == INFERENCE or path.startswith(INFERENCE + "/")


def retry_after(error: ServiceError) -> int | None:
    """Return the whole seconds after which the client may try again; None if that does not help."""
    if not error.retryable or error.status not in (429, 503):
        return None
    return max(1, math.ceil(error.retry_after))


def invalid(details: Sequence[ErrorDetails]) -> InvalidParameter:
    """Return the errors that pydantic found, by path (`images[2].url`); unknown names come last."""
    ordered = sorted(details, key=lambda each: each["type"] == "extra_forbidden")
    errors = [
        FieldError(_path(each["loc"]), each["msg"].removeprefix("Value error, "), each.get("input"))
        for each in ordered[:MOST_ERRORS]
    ]
    first = errors[0]
    return InvalidParameter(f"{first.path}: {first.message}".removeprefix(": "), errors)


def allowed(scope: Scope) -> list[str]:
    """Return all methods that the request's path takes; the framework asks a single route."""
    asked = ({**scope, "method": method} for method in METHODS)
    return [
        each["method"]
        for each in asked
        if any(route.matches(each)[0] is Match.FULL for route in scope["app"].routes)
    ]


def _path(loc: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.lstrip(".")


def _told(errors: Sequence[FieldError]) -> list[dict[str, object]]:
    """Return the first errors: at most MOST_ERRORS, and about MOST_TEXT characters together."""
    told: list[dict[str, object]] = []
    room = MOST_TEXT
    for each in errors[:MOST_ERRORS]:
        path = shortened(each.path, LONGEST_GIVEN)
        message, given = shortened(each.message, LONGEST_MESSAGE), _printable(each.given)
        told.append({"path": path, "message": message, "given": given})
        room -= len(path) + len(message) + len(str(given))
        if room <= 0:
            break
    return told


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters; longer texts end after a word, with an ellipsis.

    A word of more than half of `most` is cut.
    """
    if len(text) <= most:
        return text
    kept = text[: most - 1]
    end = kept.rfind(" ", most // 2)
    return (kept if end < 0 else kept[:end].rstrip(" ,;:")) + "…"


_REPR = reprlib.Repr()  # of a JSON value, of which no more is made than is shown
_REPR.maxlevel, _REPR.maxlist, _REPR.maxdict = 4, 20, 20
_REPR.maxstring = _REPR.maxother = LONGEST_GIVEN


def _printable(given: object) -> object:
    if isinstance(given, str):
        return given[:LONGEST_GIVEN]
    if given is None or (isinstance(given, bool | int) and abs(given) < _LARGEST):
        return given
    return _REPR.repr(given)[:LONGEST_GIVEN]


ModelT = TypeVar("ModelT", bound=BaseModel)


def read(
    kind: type[ModelT], given: object, words: Mapping[str, str] = MappingProxyType({})
) -> ModelT:
    """Return `given` as a model; raises InvalidParameter with all errors.

    `words` are messages by the types of pydantic's errors. The error of an unknown option names all
    options, and the error of a picture tells how to send a file.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
    own = {"extra_forbidden": f"unknown option; there are {', '.join(kind.model_fields)}", **words}
    for each in details:
        if each["type"] == "bytes_type":
            each["msg"] = f"a file of a form is needed, -F {each['loc'][0]}=@picture.png"
        each["msg"] = own.get(each["type"], each["msg"])
    raise invalid(details)
