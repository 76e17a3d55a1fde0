"""The messages of a request's body, for tests that call an application without a server."""

from collections.abc import Sequence

from starlette.types import Message, Receive


def body_of(*chunks: bytes) -> Receive:
    """Return the messages of a body that comes in chunks, after which the client leaves."""
    left: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    left.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return left.pop(0) if left else {"type": "http.disconnect"}

    return receive


def cut(body: bytes, size: int) -> Sequence[bytes]:
    """Return a body in chunks of `size` bytes."""
    return [body[start : start + size] for start in range(0, len(body), size)]
