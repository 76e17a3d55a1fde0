"""Describe in OpenAPI what FastAPI cannot know: the answers of routes, ids and API keys."""

import copy
from typing import Any

from app.http.media_types import EVENTS, JSON_LINES, MULTIPART, ZIP
from app.http.problems import MEDIA_TYPE
from models.api.schemas import Reply
from models.codec import ENCODABLE

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_LINES = {"schema": {"$ref": "#/components/schemas/Record"}}
_STREAMS = {
    **{kind: _LINES for kind in (*JSON_LINES, EVENTS)},
    **{kind: _BINARY for kind in (ZIP, MULTIPART)},
}

_REQUEST_ID: Schema = {"type": "string", "pattern": "^[!-~]{1,128}$"}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
"""The two headers that may hold an API key, if the server needs one."""

_ETAG = {
    "ETag": {
        "description": "of a whole answer without errors, to a request with If-None-Match",
        "schema": {"type": "string"},
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

_OF_IMAGES: Responses = {
    304: {
        "description": "If-None-Match names the ETag of the answer; nothing was computed",
        "headers": _ETAG,
    },
    406: described_problem("No format that Accept allows can be made"),
    413: described_problem("The body, a file or the number of images is over its limit"),
    415: described_problem("Not an image of a format that is read, or another Content-Type"),
    422: described_problem("The image cannot be decoded, an option is wrong, or a URL is refused"),
    500: described_problem("A fault of the server; it has been logged"),
    502: described_problem("The origin of a URL failed"),
    504: described_problem("The deadline passed, or the origin of a URL was too slow"),
}

LABELS: Responses = _OF_IMAGES | {
    200: {
        "model": Reply,
        "headers": _ETAG,
        "description": "Every image with its own outcome",
        "content": {kind: _LINES for kind in (*JSON_LINES, EVENTS)},
    }
}
"""The answers of `POST /classify`."""

DESCRIPTIONS: Responses = LABELS
"""The answers of `POST /info`: records, as those of `POST /classify`."""

IMAGES: Responses = _OF_IMAGES | {
    200: {
        "headers": _ETAG,
        "description": "One image, or several in one of the other forms",
        "content": {**{each.media_type: _BINARY for each in ENCODABLE}, **_STREAMS},
    }
}
"""The answers of `POST /filter`."""

PARTS: Responses = _OF_IMAGES | {
    200: {
        "model": Reply,
        "headers": _ETAG,
        "description": "Every part with its own outcome",
        "content": _STREAMS,
    }
}
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
