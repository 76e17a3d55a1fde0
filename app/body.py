"""A request's body on its way in, bounded: so many bytes and no more, each with its permit."""

from fastapi import Request
from starlette.types import Message, Receive

from app.admission import Permit
from models.errors import TooLarge


def announced(request: Request) -> int:
    """Bytes of the body as its header says, 0 if it does not."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdigit() else 0


def unannounced(receive: Receive, permit: Permit, most: int) -> Receive:
    """`receive` for a body whose length nobody said: `permit` grows with every chunk.

    It raises TooLarge with the first byte over `most`, and Overloaded.
    """
    size = 0

    async def next_message() -> Message:
        nonlocal size
        message = await receive()
        chunk = len(message.get("body", b""))
        size += chunk
        if size > most:
            raise too_large(f"more than {most}", most)
        permit.grow(0, chunk)
        return message

    return next_message


def too_large(size: int | str, most: int) -> TooLarge:
    """What a client hears whose body has so many bytes, or "more than" those."""
    return TooLarge(
        f"the body has {size} bytes; one request takes {most} (DARKROOM_MAX_BODY_BYTES), "
        "send several"
    )
