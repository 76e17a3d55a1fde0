"""Names and ids of clients are text in records: never paths, never headers."""

import json
import re
from email import message_from_bytes
from email.message import Message
from typing import Any, TypeAlias

import httpx

from tests.pictures import png

Part: TypeAlias = "Message[str, str]"


def parts_of(reply: httpx.Response) -> list[Part]:
    """Return the parts of a multipart answer in order; any other answer fails the test."""
    head = f"Content-Type: {reply.headers['Content-Type']}\r\n\r\n".encode()
    parts: Any = message_from_bytes(head + reply.content).get_payload()
    assert isinstance(parts, list)
    return parts


NAMES = [
    "../../etc/passwd",
    "/etc/passwd",
    "..\\..\\windows\\system32\\a.png",
    "C:\\a.png",
    "a\x00b.png",
    "results.jsonl",
    "0000.png",
    "a;b=c.png",
    "\u202egnp.exe",
    "\u2028.png",
    "n" * 1000,
]
FORM = "multipart/form-data; boundary=b"


def form(names: list[str]) -> bytes:
    """Return a form of files with these names, written as they are."""
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n%s\r\n'
        % (name.encode(), png())
        for name in names
    )
    field = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\ninvert\r\n'
    return b"".join(parts) + field + b"--b--\r\n"


def filtered(client: httpx.Client, accept: str) -> httpx.Response:
    headers = {"Content-Type": FORM, "Accept": accept}
    reply = client.post("/filter", content=form(NAMES), headers=headers)
    assert reply.status_code == 200, reply.text
    return reply


def test_parts_of_a_multipart_answer_have_the_headers_we_wrote(client: httpx.Client) -> None:
    reply = filtered(client, "multipart/mixed")
    parts = parts_of(reply)
    assert len(parts) == len(NAMES)
    for part in parts:
        assert {*part.keys()} == {"Content-ID", "Content-Type", "Content-Disposition"}
        shown = r'attachment; filename="[\w;= -]+\.png"(; filename\*=UTF-8\'\'[\w.%-]+)?'
        assert re.fullmatch(shown, part["Content-Disposition"], re.ASCII)
        assert re.fullmatch(r"<\d+>", part["Content-ID"])


def test_ids_are_text_in_lines_and_events(client: httpx.Client) -> None:
    ids = ["a\r\nevent: x", "a\n\ndata: {}", "</script>", '"', "\u2028", "\x00"]
    body = {"images": [{"id": each, "url": "ftp://x/"} for each in ids]}
    reply = client.post("/classify", json=body, headers={"Accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in reply.content.split(b"\n") if line]
    assert sorted(line["id"] for line in lines) == sorted(ids)
    reply = client.post("/classify", json=body, headers={"Accept": "text/event-stream"})
    events = [line for line in reply.content.split(b"\n") if line.startswith(b"event:")]
    assert events == [b"event: model", *[b"event: record"] * len(ids), b"event: summary"]
