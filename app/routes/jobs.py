"""`/jobs`: long batches that the server works through in the background."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from app.http.negotiation import EVERYTHING, JSON, JSON_LINES, ZIP, parse
from app.http.problems import read
from app.http.request import content_type, departure_of, media_type
from app.intake.body import announced, coding_of, unpacked
from app.intake.request_items import MEDIA_TYPES, options_of
from app.intake.wanted import Wanted, model_of
from app.responses.answers import Body, StreamedBody
from app.responses.records import VectorStyle
from app.routes.image_route import client_name
from app.routes.images import WantedOf, classify_wanted, filter_wanted, process_wanted
from app.routes.openapi import Responses, described_problem, job_parameters
from app.service import Service, ServiceOf
from models.api.jobs import (
    JobListing,
    JobQuery,
    JobRecord,
    JobState,
)
from models.api.schemas import JsonImage
from models.domain.errors import (
    Draining,
    InvalidParameter,
    JobsDisabled,
)

if TYPE_CHECKING:  # only servers with jobs load them, and SQLAlchemy with them
    from app.jobs.jobs import Jobs
    from app.jobs.runner import WorkOf
    from app.jobs.store import Ending, Job

# The work of a job on each image, by the options that the endpoint of its operation has.
OPERATIONS: Mapping[str, WantedOf] = {
    "classify": classify_wanted,
    "filter": filter_wanted,
    "process": process_wanted,
}


def work_of(service: Service) -> "WorkOf":
    """Return the function that maps operations and options to work, with what is served now."""
    from app.jobs.runner import Work

    def work(operation: str, given: Mapping[str, Any]) -> Work:
        wanted = _wanted(operation, given, service)
        model = model_of(wanted, service.computing().networks)
        labels = None if model is None else model.labels
        shown = None if model is None else model.record_for("model" in given).model_dump()
        return Work(wanted, labels, VectorStyle.of(given), shown)

    return work


def _wanted(operation: str, given: Mapping[str, Any], service: Service) -> Wanted:
    if operation in OPERATIONS:
        return OPERATIONS[operation](given, EVERYTHING, service)
    more = f"not {operation[:60]!r}" if operation else "for example ?operation=classify"
    text = f"one of {', '.join(OPERATIONS)} is needed, {more}"
    raise InvalidParameter.of("operation", text, operation[:60])


PARQUET = "application/vnd.apache.parquet"


# OpenAPI of what FastAPI cannot know of `/jobs`: bodies, results and errors.
_ITEM = JsonImage.model_json_schema()
_PATH = {"type": "string", "description": "name of a file in the archive of the form"}
_ITEM["properties"] |= {"path": _PATH}

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
            PARQUET: {"schema": {"type": "string", "format": "binary"}},
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
    operation = {
        "name": "operation",
        "in": "query",
        "required": True,
        "description": "what is done with each image: the same as by the endpoint of that name",
        "schema": {"type": "string", "enum": [*OPERATIONS]},
    }
    return {"parameters": [operation, *job_parameters(JobQuery)], "requestBody": body}


router = APIRouter(tags=["jobs"])

RETRY_AFTER = 2
"""Seconds after which it is worth asking for the state of a new job."""

Id = Annotated[str, Path(description="id of the job", max_length=64)]


@router.post(
    "/jobs",
    operation_id="make_job",
    status_code=202,
    response_model=JobRecord,
    responses=ACCEPTED,
    openapi_extra=job_document(),
)
async def make_job(
    request: Request,
    service: ServiceOf,
    idempotency_key: Annotated[str | None, Header(max_length=255, pattern="^[!-~]+$")] = None,
) -> Response:
    """Take a manifest of images, and work through it in the background.

    Options are those of the endpoint of that name. The answer comes when the manifest is on disk;
    from then on the job survives restarts of the server.
    """
    from app.jobs.jobs import JobRequest

    jobs, client = _jobs(service), client_name(service, request.scope)
    n_bytes, coding = announced(request.scope), coding_of(request.scope)
    if service.stopping.is_set():
        raise Draining("this server is stopping; ask another one")
    options = options_of(request, [])
    operation = options.pop("operation", "")
    given = {name: options.pop(name) for name in JobQuery.model_fields if name in options}
    query = read(JobQuery, given)
    work_of(service)(operation, options)
    if query.webhook is not None:
        jobs.endings.sender.check(query.webhook)
    asked = JobRequest(client, operation, options, query, idempotency_key)
    await jobs.worker.check(query.destination)
    kind = media_type(content_type(request.scope))
    if coding:
        most = service.settings.max_job_bytes
        body = unpacked(request.scope, request.receive, coding, most, lambda _n_bytes: None)
        request = Request(request.scope, body)
    job = await jobs.accept(asked, request, kind, n_bytes)
    headers = {"Location": f"/jobs/{job.id}", "Retry-After": str(RETRY_AFTER)}
    return _answer((await _records(jobs, [job]))[0], 202, headers)


@router.get("/jobs", operation_id="list_jobs", response_model=JobListing, responses=_OF_JOBS)
async def list_jobs(
    request: Request,
    service: ServiceOf,
    state: JobState | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    before: Annotated[
        str | None, Query(max_length=64, description="id of the last job of the page before")
    ] = None,
) -> Response:
    """List your jobs, the newest first."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    found = await jobs.store.listed(client, state, before, limit + 1)
    records = await _records(jobs, found[:limit])
    following = None
    if len(found) > limit:
        chosen = f"&state={state}" if state else ""
        following = f"/jobs?limit={limit}&before={found[limit - 1].id}{chosen}"
    return _answer(JobListing(jobs=records, next=following))


@router.get("/jobs/{id}", operation_id="get_job", response_model=JobRecord, responses=_OF_ONE)
async def get_job(request: Request, service: ServiceOf, id: Id) -> Response:
    """Return the state of a job, its counts, its rate and its estimated end."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    return _answer((await _records(jobs, [await jobs.store.of_client(id, client)]))[0])


@router.delete("/jobs/{id}", operation_id="delete_job", status_code=202, responses=REMOVED)
async def delete_job(request: Request, service: ServiceOf, id: Id) -> Response:
    """Cancel a job that is not finished (202), or remove one that is, with its results (204)."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    if await jobs.delete(id, client) is None:
        return Response(status_code=204)
    return _answer((await _records(jobs, [await jobs.store.of_client(id, client)]))[0], 202)


@router.post(
    "/jobs/{id}/cancel", operation_id="cancel_job", response_model=JobRecord, responses=_OF_ONE
)
async def cancel_job(request: Request, service: ServiceOf, id: Id) -> Response:
    """Cancel a job, and keep what is done; a job that has finished meanwhile stays as it is."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    return _answer((await _records(jobs, [await jobs.cancel(id, client)]))[0])


@router.get(
    "/jobs/{id}/results", operation_id="job_results", responses=RESULTS, response_class=Response
)
async def job_results(
    request: Request,
    service: ServiceOf,
    id: Id,
    offset: Annotated[int, Query(ge=0, description="records to skip")] = 0,
    limit: Annotated[int | None, Query(ge=0, description="records to send at most")] = None,
    follow: Annotated[
        bool, Query(description="wait for the records of a job that still runs; skip empty lines")
    ] = False,
    status: Annotated[
        Literal["error"] | None, Query(description="only records of items that failed")
    ] = None,
    output: Annotated[
        Literal["jsonl", "zip", "parquet"] | None,
        Query(description="the form; without it Accept chooses"),
    ] = None,
) -> Response:
    """Return the records of a job as JSON Lines, in the order in which they were finished.

    As a ZIP the images are files, and the records are in `results.jsonl`; as Parquet each record is
    a row. When the server stops, followed lines end early, after a whole record; go on at the next
    `offset` then.

    This order never changes, so a client that has N records asks for `offset=N` next. Each record
    has the `index` of its line. With `status` only those that failed are sent, all are counted.
    """
    jobs, client = _jobs(service), client_name(service, request.scope)
    from app.jobs.results import failed_records, results_parquet, results_zip

    job = await jobs.store.of_client(id, client)
    chosen = (lambda records: records) if status is None else failed_records
    headers = {"X-Job-State": job.state.value, "Cache-Control": "no-store", "Vary": "Accept"}
    form = output or _FORMS.get(parse(request.headers.get("accept")).best(_OFFERS) or "", "jsonl")
    if form == "parquet" and find_spec("pyarrow") is None:
        text = "this server writes no Parquet; its operator installs the extra `parquet`"
        raise InvalidParameter.of("output", text, form)
    found = await jobs.results(job, offset, limit, follow=follow, whole=form != "jsonl")
    content: Body
    left = departure_of(request.scope)
    if form == "jsonl":
        content = chosen(found.read())
        return StreamedBody(content, headers, JSON_LINES[0], found, departure=left)
    if form == "zip":
        content = results_zip(found.read, chosen, images=job.operation != "classify")
    else:
        content = results_parquet(chosen(found.read()))
    headers["Content-Disposition"] = f'attachment; filename="{job.id}.{form}"'
    kind = ZIP if form == "zip" else PARQUET
    return StreamedBody(content, headers, kind, found, departure=left)


_FORMS = {ZIP: "zip", PARQUET: "parquet"}
_OFFERS = (*JSON_LINES, *_FORMS)


def _jobs(service: Service) -> "Jobs":
    if service.jobs is None:
        raise JobsDisabled(
            "this server keeps no jobs, because it has no folder for them; its operator sets "
            "DARKROOM_DATA_FOLDER"
        )
    return service.jobs


async def _records(jobs: "Jobs", found: "Sequence[Job]") -> list[JobRecord]:
    """Return jobs as clients see them."""
    endings = await jobs.store.endings_of([each.id for each in found])
    return [_shown(each, endings[each.id]) for each in found]


def _shown(job: "Job", endings: "Mapping[str, Ending]") -> JobRecord:
    rate = end = None
    if job.state == "running" and job.started is not None and job.done:
        rate = job.done / max(time.time() - job.started, 1e-3)
        end = time.time() + (job.total - job.done) / rate
    items = {"total": job.total, "done": job.done, "failed": job.failed}
    more = {
        "state": job.state.value,
        "items": {**items, "succeeded": job.done - job.failed},
        "rate": None if rate is None else round(rate, 2),
        "estimated_end": end,
        "results": f"/jobs/{job.id}/results",
        "destination": None,
    }
    more |= {kind: asdict(each) for kind, each in endings.items()}
    return JobRecord.model_validate(asdict(job) | more)


def _answer(
    content: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    body = content.model_dump_json(exclude_none=True)
    fresh = {"Cache-Control": "no-store", **(headers or {})}
    return Response(body, status, fresh, JSON)
