"""Call image routes without a search: what FastAPI does around a route costs 15 µs a request.

Most requests are for images, and these routes use nothing of FastAPI's middleware but the handlers
of errors. All other requests, and wrong methods, go through FastAPI.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIRouter
from opentelemetry.trace import get_current_span
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from app.routes.access_log import AccessLog
from app.routes.images.image_route import ImageRoute
from app.telemetry.metrics import Metrics
from models.settings import Settings


class DirectRoutes:
    """Hands requests for an image route to `access_log`, all others to `otherwise`."""

    def __init__(
        self, routes: Sequence[ImageRoute], access_log: ASGIApp, otherwise: ASGIApp
    ) -> None:
        self._routes = {
            (method, route.path): route for route in routes for method in route.methods or ()
        }
        self._access_log = access_log
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None:
            await self._otherwise(scope, receive, send)
            return
        scope["route"] = route
        await self._access_log(scope, receive, send)


async def _handle(scope: Scope, receive: Receive, send: Send) -> None:
    """Call the route that was found, and name it in the span of the request if there is one."""
    route: APIRoute = scope["route"]
    if scope.get("fastapi.telemetry") is not None:  # the router does this for all other routes
        span = get_current_span()
        span.update_name(f"{scope['method']} {route.path}")
        span.set_attribute("http.route", route.path)
        span.set_attribute("darkroom.request_id", scope["request_id"])
    await route.handle(scope, receive, send)


class ErrorAnswers:
    """Answers errors of `app` as Starlette's middleware does; requests without one do not pass it.

    An error that comes after the answer has begun is raised: AccessLog notes its beginning in the
    scope.
    """

    def __init__(self, app: ASGIApp, handlers: Mapping[Any, ExceptionHandler]) -> None:
        self._app = app
        self._answered = ExceptionMiddleware(_raised, handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            if scope.get("answering", False):
                raise
            scope["error"] = error
            await self._answered(scope, receive, send)


async def _raised(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise scope.pop("error")


def install(
    app: FastAPI, routers: Sequence[APIRouter], settings: Settings, metrics: Metrics
) -> None:
    """Put the image routes of `routers` before an application that is complete otherwise."""
    routes = [each for part in routers for each in part.routes if isinstance(each, ImageRoute)]
    answered = ErrorAnswers(_handle, app.exception_handlers)
    access_log = AccessLog.of(answered, settings, metrics)
    app.middleware_stack = DirectRoutes(routes, access_log, app.build_middleware_stack())
