"""Requests as values: what is asked, and how the options of methods become fields of forms."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from darkroom_client.images import Item, content_of, item
from darkroom_client.options import (
    ClassifyOptions,
    FilterOptions,
    InfoOptions,
    MatchOptions,
    Operations,
    ProcessOptions,
    Progress,
    Versions,
)

JSON_LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request without its host; a `file` is its body, which is sent piece by piece."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str | list[str]] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    files: Sequence[tuple[str, bytes]] = ()
    file: Path | None = None

    def with_headers(self, **headers: str) -> "Call":
        """Return the same request with more headers; `_` stands for `-` in their names."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return replace(self, headers={**self.headers, **named})


@dataclass(frozen=True, slots=True)
class ImageCall:
    """What is done to images: the path, the fields of each form, and the options of the call."""

    path: str
    fields: Mapping[str, str]
    deadline: float | None = None
    request_id: str | None = None
    progress: Callable[[Progress], None] | None = None
    out: Path | None = None
    pictures: Mapping[str, bytes] = field(default_factory=dict)

    def numbered(self, number: int) -> "ImageCall":
        """Return the call with the id of its request of this number, counted from 1."""
        if self.request_id is None or number == 1:
            return self
        return replace(self, request_id=f"{self.request_id}-{number}")

    def request(self, items: Sequence[tuple[Item, bytes]]) -> tuple[Call, list[Item]]:
        """Return a request for images with their contents, and the images in its order.

        A form has its fields before its files, so URLs come first. Files are sent without their
        names: the caller's results have them, and a name such as `a.zip` would make the server
        take the file apart.
        """
        urls = [each for each, _ in items if each.url is not None]
        files = [(each, content) for each, content in items if each.url is None]
        fields: dict[str, str | list[str]] = {**self.fields}
        if urls:
            fields["urls"] = [str(each.url) for each in urls]
        named = [(f"image-{each.index}", content) for each, content in files]
        headers = {"Accept": JSON_LINES}
        call = Call("POST", self.path, {}, headers, fields, self.pictures, named)
        return call, [*urls, *(each for each, _ in files)]


def classify(options: ClassifyOptions) -> ImageCall:
    """Return the call of `POST /classify`; vectors come as base64, which is exact and short."""
    vectors = options.get("output") not in (None, "labels")
    return _call("/classify", options, {"vector_format": "base64"} if vectors else {})


def filtered(operations: Operations | None, options: FilterOptions) -> ImageCall:
    """Return the call of `POST /filter`; a call without filters names a preset."""
    fields = {} if operations is None else {"ops": json_text(chain(operations))}
    return _call("/filter", options, fields)


def process(versions: Versions, options: ProcessOptions) -> ImageCall:
    """Return the call of `POST /process`."""
    fields = {"versions": json_text([dict(each) for each in versions])}
    if options.get("output") not in (None, "labels"):
        fields["vector_format"] = "base64"
    return _call("/process", options, fields)


def info(options: InfoOptions) -> ImageCall:
    """Return the call of `POST /info`."""
    return _call("/info", options, {})


def match(options: MatchOptions) -> ImageCall:
    """Return the call of `POST /match`."""
    return _call("/match", options, {})


def chain(operations: Operations) -> list[dict[str, Any]]:
    """Return one filter or several as the list that the server takes."""
    many = [operations] if isinstance(operations, str | Mapping) else operations
    return [{"name": each} if isinstance(each, str) else dict(each) for each in many]


_PICTURES = ("overlay", "template")
_OF_CALLS = frozenset({"deadline", "request_id", "progress", "out", *_PICTURES})


def _call(path: str, options: Mapping[str, Any], fields: dict[str, str]) -> ImageCall:
    asked = texts(options)
    own = {name: value for name, value in options.items() if name in _OF_CALLS}
    if own.get("out") is not None:
        own["out"] = Path(own["out"])
    pictures = {
        name: content_of(item(0, given))
        for name in _PICTURES
        if (given := own.pop(name, None)) is not None
    }
    check_deadline(own.get("deadline"))
    return ImageCall(path, asked | fields, pictures=pictures, **own)


def check_deadline(seconds: float | None) -> None:
    """Raise ValueError for a deadline that is not in the future."""
    if seconds is not None and not seconds > 0:
        raise ValueError(f"deadline is {seconds}: give a positive number of seconds, or None")


def json_text(value: object) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that the server gets, as texts."""
    return {
        name: _text(value)
        for name, value in options.items()
        if name not in _OF_CALLS and value is not None
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
