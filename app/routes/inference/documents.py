"""Describe the requests and answers of the Open Inference Protocol in OpenAPI."""

from typing import Any

from app.http.request_lifetime import DIGITS, HEADER
from app.intake.inference.inference_request import HEADER as JSON_BYTES
from app.routes.documentation.openapi import PROBLEMS, Responses

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_PARAMETERS: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
_ERROR: Schema = {"type": "object", "properties": {"error": _TEXT}, "required": ["error"]}
_SHAPE: Schema = {"type": "array", "items": {"type": "integer"}}
_NUMBERS: Schema = {"type": "array", "items": {"type": ["number", "string", "array"]}}

_TENSOR: Schema = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": _TEXT,
        "shape": _SHAPE,
        "datatype": {"type": "string", "enum": ["BYTES", "UINT8", "FP32"]},
        "parameters": _PARAMETERS,
        "data": _NUMBERS,
    },
}

_REQUEST: Schema = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": _TEXT,
        "parameters": _PARAMETERS,
        "inputs": {"type": "array", "items": _TENSOR, "minItems": 1, "maxItems": 1},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": _TEXT, "parameters": _PARAMETERS},
            },
        },
    },
}

_REPLY: Schema = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "model_name": _TEXT,
        "model_version": _TEXT,
        "id": _TEXT,
        "parameters": _PARAMETERS,
        "outputs": {"type": "array", "items": {"type": "object"}},
    },
}

_BINARY: Schema = {"type": "string", "format": "binary"}

_STATUSES: dict[int, str] = {
    400: "The request, its shapes or its sizes are wrong",
    404: "There is no such model or version",
    413: "The body, an image or the number of images is over its limit",
    415: "The body has another Content-Encoding, or images are of no format that is read",
    422: "Images cannot be decoded or computed, and the output ERROR was not asked for",
    504: "The deadline passed",
}


def _error(description: str, base: dict[str, Any] | None = None) -> dict[str, Any]:
    kept = {k: v for k, v in (base or {}).items() if k == "headers"}
    return {
        "description": description,
        "content": {"application/json": {"schema": _ERROR}},
        **kept,
    }


INFERENCE_ERRORS: Responses = {
    **{status: _error(base["description"], base) for status, base in PROBLEMS.items()},
    **{status: _error(text) for status, text in _STATUSES.items()},
}
"""The errors of the protocol, `{"error": "…"}`."""


def _answered(schema: Schema, description: str) -> Responses:
    shown = {"application/json": {"schema": schema}}
    return INFERENCE_ERRORS | {200: {"description": description, "content": shown}}


OBJECT: Responses = _answered({"type": "object"}, "An object of the protocol")
OBJECTS: Responses = _answered({"type": "array", "items": {"type": "object"}}, "All models")

INFERRED: Responses = INFERENCE_ERRORS | {
    200: {
        "description": "The outputs; binary ones stand behind the JSON, in their order",
        "headers": {
            JSON_BYTES: {
                "description": "bytes of the JSON, if an output stands behind it",
                "schema": {"type": "integer", "minimum": 1},
            }
        },
        "content": {
            "application/json": {"schema": _REPLY},
            "application/octet-stream": {"schema": _BINARY},
        },
    }
}


def infer_document() -> dict[str, Any]:
    """Return the description of an inference request."""
    header = {"in": "header", "schema": {"type": "integer", "minimum": 1}}
    deadline = {"type": "integer", "minimum": 1000, "maximum": 10**DIGITS - 1}
    return {
        "parameters": [
            header
            | {
                "name": JSON_BYTES,
                "description": "bytes of the JSON, if the tensor stands behind it",
            },
            {
                "name": HEADER,
                "in": "header",
                "schema": deadline,
                "description": "milliseconds the request may take; the server has a cap",
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _REQUEST},
                "application/octet-stream": {"schema": _BINARY},
            },
        },
    }
