"""Read one header of a request without an object for all of them."""

from functools import lru_cache

from starlette.types import Scope

MOST_TYPES = 32
"""Content-Type headers that are remembered: clients choose them, and one may have 64 KiB."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this name, which is in lower case; None without one."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


def content_type(scope: Scope) -> str:
    """Return the media type of the body with its parameters, empty if the client sent none."""
    return header(scope, b"content-type") or ""


@lru_cache(MOST_TYPES)
def media_type(content_type: str) -> str:
    """Return what a Content-Type header says without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()
