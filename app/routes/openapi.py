"""Describe for OpenAPI the bodies, options, answers, ids and API keys that FastAPI does not see."""

import copy
import json
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel

from app.http.negotiation import EVENTS, JSON_LINES, MULTIPART, ZIP
from app.http.problems import MEDIA_TYPE
from app.http.request import DIGITS, HEADER
from app.intake.inference import HEADER as JSON_BYTES
from app.intake.request_items import CHARSET, PICTURES
from app.intake.request_items import MEDIA_TYPES as ARCHIVES
from app.intake.stream import LENGTH_DELIMITED
from app.routes.page import BESIDE_NAME
from models.api.schemas import (
    EncodingOptions,
    FilterOptions,
    JsonImages,
    MatchOptions,
    ProcessOptions,
    Reply,
)
from models.codec import ENCODABLE
from workers.filters.registry import FILTERS, describe

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_LINES = {"schema": {"$ref": "#/components/schemas/Record"}}
_RECORDS = dict.fromkeys((*JSON_LINES, EVENTS), _LINES)
_FILES = dict.fromkeys((ZIP, MULTIPART), _BINARY)

_REQUEST_ID: Schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
"""The two headers that may hold an API key, if the server needs one."""

_ETAG: Schema = {
    "headers": {
        "ETag": {
            "description": "of a whole answer without errors, to a request with If-None-Match",
            "schema": {"type": "string"},
        }
    }
}

_RETRY_AFTER = {
    "Retry-After": {
        "description": "seconds after which coming back helps",
        "schema": {"type": "integer", "minimum": 1},
    }
}


def described_problem(description: str, *, retry: bool = False) -> dict[str, Any]:
    """Return the description of an answer with a problem; `retry`: it has Retry-After."""
    found: dict[str, Any] = {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    return found | {"headers": _RETRY_AFTER} if retry else found


PROBLEMS: Responses = {
    400: described_problem("The request cannot be parsed, its Host or framing is not valid"),
    401: described_problem("An API key is needed, or the one given is not known"),
    403: described_problem("The API key is disabled"),
    408: described_problem("The headers or the body came too slowly"),
    414: described_problem("The URL is too long"),
    422: described_problem("A parameter is unknown or out of range; `errors` has their paths"),
    429: described_problem("This client has too much under way", retry=True),
    431: described_problem("The headers are too large"),
    503: described_problem("Busy, stopping, or without weights", retry=True),
    "default": described_problem("What is wrong, and what to do (RFC 9457)"),
}
"""The errors of every route."""

NOT_FOUND: Responses = {404: described_problem("There is no such filter; GET /filters lists them")}

OF_IMAGES: Responses = PROBLEMS | {
    304: _ETAG
    | {"description": "If-None-Match names the ETag of the answer; nothing was computed"},
    406: described_problem("No format that Accept allows can be made"),
    413: described_problem("The body, a file or the number of images is over its limit"),
    415: described_problem("Not an image of a format that is read, or another Content-Type"),
    422: described_problem("The image cannot be decoded, an option is wrong, or a URL is refused"),
    500: described_problem("A fault of the server; it has been logged"),
    502: described_problem("The origin of a URL failed"),
    504: described_problem("The deadline passed, or the origin of a URL was too slow"),
}
"""The errors of every route that takes images, and the answer to a client that has the answer."""


def _answered(description: str, content: Schema, **more: Any) -> Responses:
    return {200: {"description": description, "content": content} | _ETAG | more}


LABELS = _answered("Every image with its own outcome", _RECORDS, model=Reply)
"""The answers of `POST /classify`, `POST /info` and `POST /match`."""

IMAGES = _answered(
    "One image, or several in one of the other forms",
    {each.media_type: _BINARY for each in ENCODABLE} | _RECORDS | _FILES,
)
"""The answers of `POST /filter`."""

PARTS = _answered("Every part with its own outcome", _RECORDS | _FILES, model=Reply)
"""The answers of `POST /process`."""


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


_IMAGE_LINES = {
    "schema": {
        "type": "string",
        "description": "any number of lines, each an object as in `images` of application/json; "
        "options stand in the query; answered by application/x-ndjson while lines still come",
    }
}
_LENGTH_DELIMITED = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "any number of image files, each after its length as an unsigned number of "
        "4 bytes, the most significant first; answered as application/x-ndjson is",
    }
}
"""The bodies that are streams."""

_DEADLINE: Schema = {
    "name": HEADER,
    "in": "header",
    "schema": {"type": "integer", "minimum": 1000, "maximum": 10**DIGITS - 1},
    "description": "milliseconds the request may take; the server has a cap; fewer than 1000 are "
    "taken, too, but are soon over (504)",
}

_IF_NONE_MATCH: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": 'ETags of answers that the client has; `""` only asks for an ETag',
}


def image_document(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a request for images, with the options of a model."""
    options = _options(kind)
    if kind is FilterOptions:
        options["name"] |= {"anyOf": [{"type": "string", "enum": [*FILTERS]}, {"type": "null"}]}
        options |= _filter_parameters()
    text = {name: _as_text(schema) for name, schema in options.items()}
    picture = {"overlay": _BINARY["schema"]} if kind is FilterOptions else {}
    content = {kind: _BINARY for kind in ("image/*", "application/octet-stream", *ARCHIVES)} | {
        "multipart/form-data": {"schema": _form(text | picture)},
        "application/json": {"schema": _json(options)},
        **dict.fromkeys(JSON_LINES, _IMAGE_LINES),
        LENGTH_DELIMITED: _LENGTH_DELIMITED,
    }
    if kind is MatchOptions:  # without a form there is no template
        shown = {"description": "the picture to look for", "examples": ["@part.png"]}
        form = _form(text | {"template": _BINARY["schema"] | shown}) | {"required": ["template"]}
        content = {"multipart/form-data": {"schema": form}}
    parameters = [*_in_query(text), _DEADLINE, _IF_NONE_MATCH]
    return {"parameters": parameters, "requestBody": {"required": True, "content": content}}


def job_parameters(query: type[BaseModel]) -> list[Schema]:
    """Return the options of all operations of a job, and of `query`, as a query has them."""
    options = _options(ProcessOptions, FilterOptions, query)
    return _in_query({name: _as_text(schema) for name, schema in options.items()})


def _options(*kinds: type[BaseModel]) -> dict[str, Schema]:
    """Return the schemas of all options but pictures; those of the encoder come last."""
    properties: dict[str, Schema] = {}
    for each in kinds:
        properties |= each.model_json_schema()["properties"]
    names = sorted(properties, key=lambda name: name in EncodingOptions.model_fields)
    return {name: properties[name] for name in names if name not in PICTURES}


def _filter_parameters() -> dict[str, Schema]:
    """Return the parameters of all filters by name; filters may share a name."""
    found: dict[str, list[Schema]] = {}
    owners: dict[str, list[str]] = {}
    for name, kind in FILTERS.items():
        for parameter, schema in describe(kind)["parameters"].items():
            bare = {k: v for k, v in schema.items() if k not in ("default", "title", "description")}
            if bare not in found.setdefault(parameter, []):
                found[parameter].append(bare)
            owners.setdefault(parameter, []).append(name)
    return {
        parameter: {
            "anyOf": schemas,
            "description": f"of {', '.join(owners[parameter])}",
            BESIDE_NAME: True,
        }
        for parameter, schemas in found.items()
    }


def _in_query(text: dict[str, Schema]) -> list[Schema]:
    return [
        {
            "name": name,
            "in": "query",
            "schema": schema,
            "description": schema.get("description", ""),
        }
        for name, schema in text.items()
    ]


def _form(options: dict[str, Schema]) -> Schema:
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    urls = {"type": "array", "items": {"type": "string", "format": "uri", "maxLength": 8192}}
    charset = {"type": "string", "description": "ignored"}
    return {
        "type": "object",
        "properties": {"files": files, "file": files, "urls": urls} | options | {CHARSET: charset},
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


router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(_written(request.app), media_type="application/json")


@lru_cache(1)
def _written(app: FastAPI) -> bytes:
    """Return the document, which is written once, because that takes milliseconds."""
    return json.dumps(complete(app.openapi()), ensure_ascii=False, separators=(",", ":")).encode()


# The Open Inference Protocol, version 2.
_TEXT, _OBJECT, _SIZE = {"type": "string"}, {"type": "object"}, {"type": "integer", "minimum": 1}
_TENSOR = _OBJECT | {
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": _TEXT,
        "parameters": _OBJECT,
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string", "enum": ["BYTES", "UINT8", "FP32"]},
        "data": {"type": "array"},
    },
}
_OUTPUT = _OBJECT | {
    "required": ["name"],
    "properties": {"name": _TEXT, "parameters": _OBJECT},
}
_REQUEST = _OBJECT | {
    "description": "an inference request of the Open Inference Protocol, version 2",
    "required": ["inputs"],
    "properties": {
        "id": _TEXT,
        "parameters": _OBJECT,
        "inputs": {"type": "array", "items": _TENSOR, "minItems": 1, "maxItems": 1},
        "outputs": {"type": "array", "items": _OUTPUT},
    },
}
_REPLY = _OBJECT | {
    "description": "an inference response of the Open Inference Protocol, version 2",
    "required": ["model_name", "model_version", "outputs"],
}


def _in_protocol(errors: Responses) -> Responses:
    """Return errors with the body that the protocol gives them, `{"error": "…"}`."""
    schema = _OBJECT | {"required": ["error"], "properties": {"error": _TEXT}}
    content = {"application/json": {"schema": schema}}
    return {status: base | {"content": content} for status, base in errors.items()}


def _in_json(schema: Schema, description: str) -> Responses:
    return {200: {"description": description, "content": {"application/json": {"schema": schema}}}}


OBJECT = _in_protocol(PROBLEMS) | _in_json(_OBJECT, "An object of the protocol")
OBJECTS = _in_json({"type": "array", "items": _OBJECT}, "All models")
OF_MODEL = _in_protocol({404: {"description": "There is no such model or version"}})

INFERRED: Responses = OF_MODEL | {
    **_in_protocol({status: OF_IMAGES[status] for status in (413, 415, 422, 504)}),
    200: {
        "description": "The outputs; binary ones stand behind the JSON, in their order",
        "headers": {
            JSON_BYTES: {
                "description": "bytes of the JSON, if an output stands behind it",
                "schema": _SIZE,
            }
        },
        "content": {"application/json": {"schema": _REPLY}, "application/octet-stream": _BINARY},
    },
}


def infer_document() -> dict[str, Any]:
    """Return the description of an inference request."""
    size = {
        "name": JSON_BYTES,
        "in": "header",
        "schema": _SIZE,
        "description": "bytes of the JSON, if the tensor stands behind it",
    }
    model = {"name": "model", "in": "path", "required": True, "schema": _TEXT}
    content = {"application/json": {"schema": _REQUEST}, "application/octet-stream": _BINARY}
    return {
        "parameters": [model, size, _DEADLINE],
        "requestBody": {"required": True, "content": content},
    }
