"""Describe the requests of image routes in OpenAPI: the bodies that they read, and options."""

from typing import Any

from pydantic import BaseModel

from app.http.media_types import JSON_LINES
from app.http.request_lifetime import DIGITS, HEADER
from app.intake.archive_items import MEDIA_TYPES as ARCHIVES
from app.intake.stream import LENGTH_DELIMITED
from app.routes.documentation.forms import BESIDE_NAME
from models.api.schemas import (
    ClassifyOptions,
    EncodingOptions,
    FilterOptions,
    InfoOptions,
    JsonImages,
    ProcessOptions,
)
from workers.filters.registry import FILTERS, describe

Schema = dict[str, Any]

_BINARY = {"schema": {"type": "string", "format": "binary"}}

_LINES = {
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

LEAST_DEADLINE = 1000
"""Milliseconds in which an ordinary request is answered."""

_IF_NONE_MATCH: Schema = {
    "name": "If-None-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": 'ETags of answers that the client has; `""` only asks for an ETag',
}


def classify_document() -> dict[str, Any]:
    """Return the description of the request of `POST /classify`."""
    return _document(_options(ClassifyOptions))


def filter_document() -> dict[str, Any]:
    """Return the description of the request of `POST /filter`."""
    options = _options(FilterOptions, EncodingOptions)
    options["name"] |= {"anyOf": [{"type": "string", "enum": [*FILTERS]}, {"type": "null"}]}
    return _document(options | _filter_parameters(options))


def info_document() -> dict[str, Any]:
    """Return the description of the request of `POST /info`."""
    return _document(_options(InfoOptions))


def process_document() -> dict[str, Any]:
    """Return the description of the request of `POST /process`."""
    return _document(_options(ProcessOptions, EncodingOptions))


def job_parameters(query: type[BaseModel]) -> list[Schema]:
    """Return the options of all operations of a job, and those of `query`, as a query has them."""
    options = _options(ProcessOptions, FilterOptions, EncodingOptions, query)
    return _in_query({name: _as_text(schema) for name, schema in options.items()})


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
            *_in_query(text),
            {
                "name": HEADER,
                "in": "header",
                "schema": deadline,
                "description": "milliseconds the request may take; the server has a cap; fewer "
                f"than {LEAST_DEADLINE} are taken, too, but are soon over (504)",
            },
            _IF_NONE_MATCH,
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": _BINARY,
                "application/octet-stream": _BINARY,
                **{kind: _BINARY for kind in ARCHIVES},
                "multipart/form-data": {"schema": _form(text)},
                "application/json": {"schema": _json(options)},
                **dict.fromkeys(JSON_LINES, _LINES),
                LENGTH_DELIMITED: _LENGTH_DELIMITED,
            },
        },
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
