"""CORS: which pages of other origins may call the server; none unless the settings name them."""

from collections.abc import Callable, Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

EXPOSED = ("X-Request-ID", "Retry-After", "Server-Timing", "X-Model", "X-Filter-Spec", "ETag")
"""Headers of answers that scripts may read, beside those that they always may."""

METHODS = ("GET", "HEAD", "POST", "DELETE")
"""Methods that some route takes."""


def cross_origin(origins: Sequence[str]) -> Callable[[ASGIApp], ASGIApp]:
    """Return what wraps an application so that its answers, and its errors, carry CORS headers."""
    if not origins:
        return lambda app: app
    return lambda app: CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=("*",),
        expose_headers=EXPOSED,
    )
