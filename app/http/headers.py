"""Read one header of a request without an object for all of them."""

from starlette.types import Scope


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
