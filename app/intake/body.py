"""Bound a request's body in bytes, and charge for its bytes as they arrive."""

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from app.admission import Permit
from app.http.request import header
from models.domain.errors import TooLarge


def announced(scope: Scope) -> int:
    """Return the bytes of the body that `Content-Length` announces, 0 without that header."""
    text = header(scope, b"content-length") or ""
    return int(text) if text.isdigit() else 0


def counted(receive: Receive, permit: Permit, expected: int, most: int) -> Receive:
    """Return a `receive` that counts the body in `permit`.

    The body counts as arriving, and as admitted once it is complete. `expected` are the announced
    bytes, or 0. The result raises TooLarge with the first byte over `most`, and Overloaded.
    """
    size, reading = 0, True

    async def next_message() -> Message:
        nonlocal size, reading
        message = await receive()
        if not reading or message["type"] != "http.request":
            return message
        chunk = len(message.get("body", b""))
        size += chunk
        if size > most:
            raise too_large(f"more than {most}", most)
        if message.get("more_body", False):
            permit.arrives(chunk, expected)
        else:
            reading = False
            permit.complete(chunk)
        return message

    return next_message


async def next_piece(receive: Receive) -> tuple[bytes, bool]:
    """Return the next bytes of a body, and whether more may come; raises ClientDisconnect."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def too_large(size: int | str, most: int) -> TooLarge:
    """Return the error for a body of `size` bytes; `size` may be text such as "more than 10"."""
    return TooLarge(
        f"the body has {size} bytes; one request takes {most} (DARKROOM_MAX_BODY_BYTES), "
        "send several"
    )
