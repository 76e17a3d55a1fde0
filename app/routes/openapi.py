"""Describe in OpenAPI what FastAPI cannot know: the bodies that routes read, and their answers."""

import copy
from typing import Any

from pydantic import BaseModel

from app.http.media_types import EVENTS, JSON_LINES, MULTIPART, ZIP
from app.http.problems import MEDIA_TYPE
from app.http.request_lifetime import DIGITS, HEADER
from app.routes.docs_page import BESIDE_NAME
from models.api.schemas import (
    ClassifyOptions,
    EncodingOptions,
    FilterOptions,
    JsonImages,
    ProcessOptions,
    Reply,
)
from models.codec import ENCODABLE
from workers.filters.registry import FILTERS, describe

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_LINES = {"schema": {"$ref": "#/components/schemas/Record"}}
_STREAMS = {
    **{kind: _LINES for kind in (*JSON_LINES, EVENTS)},
    **{kind: _BINARY for kind in (ZIP, MULTIPART)},
}

LEAST_DEADLINE = 1000
"""Milliseconds in which an ordinary request is answered."""

_REQUEST_ID: Schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
"""The two headers that may hold an API key, if the server needs one."""

_RETRY_AFTER = {
    "Retry-After": {
        "description": "seconds after which coming back helps",
        "schema": {"type": "integer", "minimum": 1},
    }
}


def _problem(description: str, *, retry: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    return found | {"headers": _RETRY_AFTER} if retry else found


PROBLEMS: Responses = {
    400: _problem("The request cannot be parsed, its Host or framing is not valid"),
    401: _problem("An API key is needed, or the one given is not known"),
    403: _problem("The API key is disabled"),
    408: _problem("The headers or the body came too slowly"),
    414: _problem("The URL is too long"),
    422: _problem("A parameter is unknown or out of range; `errors` has their paths"),
    429: _problem("This client has too much under way", retry=True),
    431: _problem("The headers are too large"),
    503: _problem("Busy, stopping, or without weights", retry=True),
    "default": _problem("What is wrong, and what to do (RFC 9457)"),
}
"""The errors of every route."""

NOT_FOUND: Responses = {404: _problem("There is no such filter; GET /filters lists them")}

_OF_IMAGES: Responses = {
    406: _problem("No format that Accept allows can be made"),
    413: _problem("The body, a file or the number of images is over its limit"),
    415: _problem("Not an image of a format that is read, or another Content-Type"),
    422: _problem("The image cannot be decoded, an option is wrong, or a URL is refused"),
    500: _problem("A fault of the server; it has been logged"),
    502: _problem("The origin of a URL failed"),
    504: _problem("The deadline passed, or the origin of a URL was too slow"),
}

LABELS: Responses = _OF_IMAGES | {
    200: {
        "model": Reply,
        "description": "Every image with its own outcome",
        "content": {kind: _LINES for kind in (*JSON_LINES, EVENTS)},
    }
}
"""The answers of `POST /classify`."""

IMAGES: Responses = _OF_IMAGES | {
    200: {
        "description": "One image, or several in one of the other forms",
        "content": {**{each.media_type: _BINARY for each in ENCODABLE}, **_STREAMS},
    }
}
"""The answers of `POST /filter`."""

PARTS: Responses = _OF_IMAGES | {
    200: {"model": Reply, "description": "Every part with its own outcome", "content": _STREAMS}
}
"""The answers of `POST /process`."""


def classify_document() -> dict[str, Any]:
    """Return the description of the request of `POST /classify`."""
    return _document(_options(ClassifyOptions))


def filter_document() -> dict[str, Any]:
    """Return the description of the request of `POST /filter`."""
    options = _options(FilterOptions, EncodingOptions)
    options["name"] |= {"anyOf": [{"type": "string", "enum": [*FILTERS]}, {"type": "null"}]}
    return _document(options | _filter_parameters(options))


def process_document() -> dict[str, Any]:
    """Return the description of the request of `POST /process`."""
    return _document(_options(ProcessOptions, EncodingOptions))


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which every operation has the id of a request as header and answer."""
    document = copy.deepcopy(document)
    given = {
        "name": "X-Request-ID",
        "in": "header",
        "description": "id of the request in answers and logs; if it is not this, one is made",
        "schema": _REQUEST_ID,
    }
    document["components"]["securitySchemes"] = _KEYS
    answered = {"X-Request-ID": {"description": "id of the request", "schema": _REQUEST_ID}}
    for operations in document["paths"].values():
        for method, operation in operations.items():
            if method == "post":
                operation["security"] = [{}, *({name: []} for name in _KEYS)]
            operation["parameters"] = [*operation.get("parameters", []), given]
            for response in operation["responses"].values():
                response["headers"] = response.get("headers", {}) | answered
    return document


def _options(*kinds: type[BaseModel]) -> dict[str, Schema]:
    properties: dict[str, Schema] = {}
    for each in kinds:
        properties |= each.model_json_schema()["properties"]
    return properties


def _filter_parameters(known: dict[str, Schema]) -> dict[str, Schema]:
    """Return the parameters of all filters by name; filters may share a name."""
    found: dict[str, list[Schema]] = {}
    owners: dict[str, list[str]] = {}
    for name, kind in FILTERS.items():
        for parameter, schema in describe(kind)["parameters"].items():
            bare = {k: v for k, v in schema.items() if k not in ("default", "title", "description")}
            if bare not in found.setdefault(parameter, []):
                found[parameter].append(bare)
            owners.setdefault(parameter, []).append(name)
    assert not found.keys() & known.keys()
    return {
        parameter: {
            "anyOf": schemas,
            "description": f"of {', '.join(owners[parameter])}",
            BESIDE_NAME: True,
        }
        for parameter, schemas in found.items()
    }


def _document(options: dict[str, Schema]) -> dict[str, Any]:
    text = {name: _as_text(schema) for name, schema in options.items()}
    deadline = {"type": "integer", "minimum": LEAST_DEADLINE, "maximum": 10**DIGITS - 1}
    return {
        "parameters": [
            *(
                {
                    "name": name,
                    "in": "query",
                    "schema": schema,
                    "description": schema.get("description", ""),
                }
                for name, schema in text.items()
            ),
            {
                "name": HEADER,
                "in": "header",
                "schema": deadline,
                "description": "milliseconds the request may take; the server has a cap; fewer "
                f"than {LEAST_DEADLINE} are taken, too, but are soon over (504)",
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": _BINARY,
                "application/octet-stream": _BINARY,
                "multipart/form-data": {"schema": _form(text)},
                "application/json": {"schema": _json(options)},
            },
        },
    }


def _form(options: dict[str, Schema]) -> Schema:
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    urls = {"type": "array", "items": {"type": "string", "format": "uri", "maxLength": 8192}}
    charset = {"type": "string", "description": "codec of the fields after it"}
    return {
        "type": "object",
        "properties": {"files": files, "file": files, "urls": urls}
        | options
        | {"_charset_": charset | {"enum": ["utf-8", "ascii", "latin-1", "iso-8859-1"]}},
        "anyOf": [{"required": [name]} for name in ("files", "file", "urls")],
        "additionalProperties": False,
    }


def _json(options: dict[str, Schema]) -> Schema:
    images = JsonImages.model_json_schema()
    item = images.pop("$defs")["JsonImage"]
    item["oneOf"] = [{"required": ["url"]}, {"required": ["data"]}]
    images["properties"]["images"]["items"] = item
    images["properties"] |= options
    images["anyOf"] = [{"required": ["images"]}, {"required": ["urls"]}]
    images["additionalProperties"] = False
    return images


def _as_text(schema: Schema) -> Schema:
    """Return a schema as a query or a form has it: without null, and with lists as text."""
    kinds = schema.get("anyOf", [schema])
    if not any("type" in each or "enum" in each for each in kinds):
        return schema
    rest = {k: v for k, v in schema.items() if k not in ("anyOf", "type", "items", "default")}
    if any(each.get("type") == "array" for each in kinds):
        return rest | {"type": "string"}
    left = [each for each in kinds if each.get("type") != "null"]
    return schema if left == [schema] else rest | (left[0] if len(left) == 1 else {"anyOf": left})
