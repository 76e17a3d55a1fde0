"""What OpenAPI says that FastAPI cannot know: bodies that routes read themselves, their answers."""

from typing import Any

from pydantic import BaseModel

from app.problems import MEDIA_TYPE
from app.replies import EVENTS, JSON_LINES, MULTIPART, ZIP
from models.codec import ENCODABLE
from models.schemas import (
    ClassifyOptions,
    EncodingOptions,
    FilterOptions,
    JsonImages,
    ProcessOptions,
    Reply,
)

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_LINES = {"schema": {"$ref": "#/components/schemas/Record"}}
_STREAMS = {
    **{kind: _LINES for kind in (*JSON_LINES, EVENTS)},
    **{kind: _BINARY for kind in (ZIP, MULTIPART)},
}

Responses = dict[int | str, dict[str, Any]]

PROBLEMS: Responses = {
    "default": {
        "description": "What is wrong, and what to do (RFC 9457)",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""Every error of every route."""

LABELS: Responses = {
    200: {
        "model": Reply,
        "description": "Every image with its own outcome",
        "content": {kind: _LINES for kind in (*JSON_LINES, EVENTS)},
    }
}
"""The answers of `POST /classify`."""

IMAGES: Responses = {
    200: {
        "description": "One image, or several in one of the other forms",
        "content": {**{each.media_type: _BINARY for each in ENCODABLE}, **_STREAMS},
    }
}
"""The answers of `POST /filter`."""

PARTS: Responses = {
    200: {"model": Reply, "description": "Every part with its own outcome", "content": _STREAMS}
}
"""The answers of `POST /process`."""


def classify_document() -> dict[str, Any]:
    """The request of `POST /classify`."""
    return _document(ClassifyOptions)


def filter_document() -> dict[str, Any]:
    """The request of `POST /filter`."""
    return _document(FilterOptions, EncodingOptions)


def process_document() -> dict[str, Any]:
    """The request of `POST /process`."""
    return _document(ProcessOptions, EncodingOptions)


def _document(*options: type[BaseModel]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for each in options:
        properties |= each.model_json_schema()["properties"]
    images = JsonImages.model_json_schema()
    item = images.pop("$defs")["JsonImage"]
    images["properties"]["images"]["items"] = item
    images["properties"] |= properties
    form = {
        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "urls": {"type": "array", "items": {"type": "string"}},
    }
    return {
        "parameters": [
            {
                "name": name,
                "in": "query",
                "schema": schema,
                "description": schema.get("description", ""),
            }
            for name, schema in properties.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": _BINARY,
                "application/octet-stream": _BINARY,
                "multipart/form-data": {
                    "schema": {"type": "object", "properties": form | properties}
                },
                "application/json": {"schema": images},
            },
        },
    }
