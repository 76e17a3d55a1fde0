"""What OpenAPI says of the routes that read their body themselves: three kinds of body, options."""

from typing import Any

from pydantic import BaseModel

from models.schemas import (
    ClassifyOptions,
    EncodingOptions,
    FilterOptions,
    JsonImages,
    ProcessOptions,
)

_BINARY = {"schema": {"type": "string", "format": "binary"}}


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
