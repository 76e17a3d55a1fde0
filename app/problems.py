"""Errors as RFC 9457 problems: the one place where the error tree meets HTTP."""

import math
from collections.abc import Sequence
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from models.errors import FieldError, InvalidParameter, Overloaded, ServiceError
from models.schemas import Problem

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:darkroom:problem:"

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def problem(
    error: ServiceError, request: Request | None = None, index: int | None = None
) -> Problem:
    """The public form of an error; `request` gives instance and id, `index` the item."""
    return Problem(
        type=TYPE_PREFIX + error.code,
        title=error.title,
        status=error.status,
        detail=error.detail,
        code=error.code,
        instance=request.url.path if request else None,
        request_id=request.scope.get("request_id") if request else None,
        item_index=index,
        errors=[
            {"path": e.path, "message": e.message, "given": _printable(e.given)}
            for e in error.errors
        ]
        or None,
    )


def answer(error: ServiceError, request: Request) -> Response:
    """The problem as a response; `Retry-After` where coming back helps."""
    headers = {}
    if error.retryable and error.status in (429, 503):
        seconds = error.retry_after if isinstance(error, Overloaded) else 5.0
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    body = problem(error, request).model_dump_json(exclude_none=True)
    return Response(body, error.status, headers, MEDIA_TYPE)


def invalid(details: Sequence[ErrorDetails]) -> InvalidParameter:
    """What pydantic found, as paths: `top_k`, `images[2].url`; unknown ones last."""
    ordered = sorted(details, key=lambda each: each["type"] == "extra_forbidden")
    errors = [FieldError(_path(each["loc"]), each["msg"], each.get("input")) for each in ordered]
    first = errors[0]
    return InvalidParameter(f"{first.path}: {first.message}".removeprefix(": "), errors)


def install(app: FastAPI) -> None:
    """Every error of the application leaves as a problem."""

    async def service_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)
        return answer(error, request)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = _HTTP_CODES.get(error.status_code, "http_error")
        body = Problem(
            type=TYPE_PREFIX + code,
            title=HTTPStatus(error.status_code).phrase,
            status=error.status_code,
            detail=_detail(error, request.url.path),
            code=code,
            instance=request.url.path,
            request_id=request.scope.get("request_id"),
            errors=None,
        ).model_dump_json(exclude_none=True)
        return Response(body, error.status_code, error.headers, MEDIA_TYPE)

    async def validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [FieldError(_path(e["loc"][1:]), e["msg"], e.get("input")) for e in error.errors()]
        return answer(InvalidParameter("the request has wrong parameters", errors), request)

    app.add_exception_handler(ServiceError, service_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, validation_error)


def _detail(error: HTTPException, path: str) -> str:
    """What is allowed, and where to look: the framework's own errors do not say."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"{path} takes {(error.headers or {}).get('Allow', 'another method')}"
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase:
        return f"there is no {path}; GET / shows what there is"
    return str(error.detail)


def _path(loc: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.lstrip(".")


def _printable(given: object) -> object:
    if isinstance(given, (bool, int, str, type(None))):
        return given[:200] if isinstance(given, str) else given
    return repr(given)[:200]
