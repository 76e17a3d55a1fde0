"""Describe in OpenAPI what FastAPI cannot know of `/jobs`: bodies, results and errors."""

from typing import Any

from app.http.media_types import JSON, JSON_LINES, ZIP
from app.intake.archive_items import MEDIA_TYPES
from app.routes.documentation.openapi import Responses, described_problem
from app.routes.documentation.request_documents import job_parameters
from app.routes.jobs.query import JobQuery
from models.api.jobs import JobRecord

_ITEM = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "maxLength": 256, "description": "your own id"},
        "url": {"type": "string", "description": "where the image is fetched"},
        "data": {"type": "string", "description": "data:image/…;base64,…"},
        "path": {"type": "string", "description": "name of a file in the archive of the form"},
    },
}

_OF_JOBS: Responses = {501: described_problem("The server has no folder for jobs")}
_OF_ONE: Responses = _OF_JOBS | {404: described_problem("You have no such job")}

ACCEPTED: Responses = _OF_JOBS | {
    202: {
        "description": "The manifest is on disk; the job is queued",
        "headers": {
            "Location": {"description": "path of the job", "schema": {"type": "string"}},
            "Retry-After": {
                "description": "seconds after which asking for its state is worth it",
                "schema": {"type": "integer", "minimum": 1},
            },
        },
    },
    413: described_problem("The body or the number of images is over its limit"),
    415: described_problem("A manifest as JSON Lines or JSON is needed"),
    507: described_problem("The data folder is full, or a disk that the job needs"),
}
"""The answers of `POST /jobs`."""

LISTED: Responses = _OF_JOBS
FOUND: Responses = _OF_ONE

REMOVED: Responses = _OF_ONE | {
    202: {"model": JobRecord, "description": "The job is being cancelled"},
    204: {"description": "The job and its results are gone"},
}
"""The answers of `DELETE /jobs/{id}`."""

RESULTS: Responses = _OF_ONE | {
    200: {
        "description": "A record a line, in the order in which they were finished",
        "content": {
            JSON_LINES[0]: {"schema": {"$ref": "#/components/schemas/Record"}},
            ZIP: {"schema": {"type": "string", "format": "binary"}},
        },
        "headers": {
            "X-Job-State": {"description": "state of the job", "schema": {"type": "string"}}
        },
    },
    410: described_problem("The results were kept for their time and are gone"),
}
"""The answers of `GET /jobs/{id}/results`."""


def job_document() -> dict[str, Any]:
    """Return the description of the options and the body of `POST /jobs`."""
    lines: dict[str, Any] = {"schema": _ITEM}
    content = dict.fromkeys(JSON_LINES, lines)
    content[JSON] = {"schema": {"type": "array", "items": _ITEM, "minItems": 1}}
    binary = {"type": "string", "format": "binary"}
    content |= {kind: {"schema": binary} for kind in MEDIA_TYPES}
    parts = {"manifest": binary, "archive": binary}
    form = {"type": "object", "required": ["archive"], "properties": parts}
    content["multipart/form-data"] = {"schema": form}
    body = {"required": True, "content": content}
    return {"parameters": job_parameters(JobQuery), "requestBody": body}
