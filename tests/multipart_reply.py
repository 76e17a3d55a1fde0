"""Parts of a multipart answer, parsed by the standard library."""

from email import message_from_bytes
from email.message import Message
from typing import Any, TypeAlias

import httpx

Part: TypeAlias = "Message[str, str]"


def parts_of(reply: httpx.Response) -> list[Part]:
    """Return the parts of a multipart answer in order; any other answer fails the test."""
    head = f"Content-Type: {reply.headers['Content-Type']}\r\n\r\n".encode()
    parts: Any = message_from_bytes(head + reply.content).get_payload()
    assert isinstance(parts, list)
    return parts


def content_of(part: Part) -> bytes:
    """Return the bytes that a part carries, without their transfer encoding."""
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content
