"""Answers as plain JSON values: bytes as digests, without times, dates and ids of requests."""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from typing import Any

import httpx

HEADERS = (
    "allow",
    "cache-control",
    "content-disposition",
    "content-security-policy",
    "content-type",
    "location",
    "vary",
    "www-authenticate",
    "x-content-type-options",
    "x-filter-spec",
    "x-model",
)
"""The headers whose values do not change; of Server-Timing only the names are kept."""

CHANGING = {"timing", "request_id", "seconds_ago", "images_per_second", "instance_id"}
"""Keys of JSON whose values differ from run to run."""


def digest(data: bytes) -> str:
    """Return the length and the SHA-256 of bytes."""
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def reply(response: httpx.Response) -> dict[str, Any]:
    """Return status, lasting headers and body of an answer."""
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    if "content-type" in headers:
        headers["content-type"] = re.sub(r"boundary=\w+", "boundary=…", headers["content-type"])
    timing = response.headers.get("server-timing", "")
    headers["server-timing"] = re.sub(r";(dur|desc)=[^,]*", "", timing)
    return {
        "status": response.status_code,
        "headers": headers,
        "body": body(response.content, response.headers.get("content-type", "")),
    }


def body(data: bytes, kind: str) -> Any:
    """Return a body by its media type; records of streams are in the order of their images."""
    if not data:
        return None
    media_type = kind.partition(";")[0].strip()
    if media_type in ("application/x-ndjson", "application/jsonl"):
        return _lines(data)
    if media_type.endswith("json"):
        return without_changing(json.loads(data))
    if media_type == "text/event-stream":
        return sorted(_event(each) for each in data.decode().split("\n\n") if each.strip())
    if media_type == "application/zip":
        return _archive(data)
    if media_type.startswith("multipart/"):
        return _parts(data, kind)
    if media_type == "text/plain" and len(data) < 200:
        return data.decode()
    return digest(data)


def without_changing(value: Any) -> Any:
    """Return JSON without the values that differ from run to run, and long texts as digests."""
    if isinstance(value, Mapping):
        return {k: without_changing(v) for k, v in value.items() if k not in CHANGING}
    if isinstance(value, list):
        return [without_changing(each) for each in value]
    if isinstance(value, str) and len(value) > 2000:
        return digest(value.encode())
    return value


def _lines(data: bytes) -> list[Any]:
    records = [without_changing(json.loads(line)) for line in data.splitlines()]
    return sorted(records, key=lambda each: json.dumps(each, sort_keys=True))


def _event(text: str) -> str:
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    if "data" in fields:
        fields["data"] = json.dumps(without_changing(json.loads(fields["data"])), sort_keys=True)
    return json.dumps(fields, sort_keys=True)


def _archive(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {
            name: _lines(archive.read(name)) if name.endswith("l") else digest(archive.read(name))
            for name in sorted(archive.namelist())
        }


def _parts(data: bytes, kind: str) -> list[Any]:
    message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + data)
    found = []
    for part in message.get_payload():
        assert not isinstance(part, str)
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        headers = {name: value for name, value in part.items()}
        found.append([headers, body(content, part.get_content_type())])
    return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))
