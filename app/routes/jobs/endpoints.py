"""`/jobs`: long batches that the server works through in the background."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from app.http import media_types, negotiation
from app.http.headers import content_type, media_type
from app.intake.body import announced
from app.intake.content_coding import coding_of, unpacked
from app.jobs.results_zip import Records, ResultsZip
from app.jobs.submission.listing import failed_records
from app.responses.body import Body, StreamedBody
from app.routes.images.image_route import client_name
from app.routes.jobs.documents import ACCEPTED, FOUND, LISTED, REMOVED, RESULTS, job_document
from app.routes.jobs.query import asked_for, options_of
from app.routes.jobs.route import JobRoute
from app.routes.jobs.work import work_of
from app.service import Service, ServiceOf
from models.api.jobs import JobEnding, JobItemCounts, JobListing, JobOperation, JobRecord, JobState
from models.domain.errors import Draining
from models.domain.job_errors import JobsDisabled

if TYPE_CHECKING:  # it imports SQLAlchemy, which only servers with jobs need
    from app.jobs.jobs import Jobs
    from app.jobs.store.endings import Ending
    from app.jobs.store.values import Job

router = APIRouter(tags=["jobs"], route_class=JobRoute)

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
    operation: JobOperation,
    idempotency_key: Annotated[str | None, Header(max_length=255, pattern="^[!-~]+$")] = None,
) -> Response:
    """Take a manifest of images, and work through it in the background.

    Options are those of the endpoint of that name. The answer comes when the manifest is on disk;
    from then on the job survives restarts of the server.
    """
    jobs, client = _jobs(service), client_name(service, request.scope)
    n_bytes, coding = announced(request.scope), coding_of(request.scope)
    if service.stopping.is_set():
        raise Draining("this server is stopping; ask another one")
    options, query = options_of(request)
    work_of(service.computing)(operation, options)
    asked = asked_for(jobs, client, operation, options, query)
    asked = replace(asked, key=idempotency_key)
    await jobs.check(asked)
    kind = media_type(content_type(request.scope))
    if coding:
        most = service.settings.max_job_bytes
        body = unpacked(request.scope, request.receive, coding, most, lambda _n_bytes: None)
        request = Request(request.scope, body)
    job = await jobs.acceptance.accept(asked, request, kind, n_bytes)
    headers = {"Location": f"/jobs/{job.id}", "Retry-After": str(RETRY_AFTER)}
    return _answer(await _record(jobs, job), 202, headers)


@router.get("/jobs", operation_id="list_jobs", response_model=JobListing, responses=LISTED)
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
    found = await jobs.listed(client, state, before, limit + 1)
    records = await _records(jobs, found[:limit])
    following = None
    if len(found) > limit:
        chosen = f"&state={state}" if state else ""
        following = f"/jobs?limit={limit}&before={found[limit - 1].id}{chosen}"
    return _answer(JobListing(jobs=records, next=following))


@router.get("/jobs/{id}", operation_id="get_job", response_model=JobRecord, responses=FOUND)
async def get_job(request: Request, service: ServiceOf, id: Id) -> Response:
    """Return the state of a job, its counts, its rate and its estimated end."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    return _answer(await _record(jobs, await jobs.find(id, client)))


@router.delete("/jobs/{id}", operation_id="delete_job", status_code=202, responses=REMOVED)
async def delete_job(request: Request, service: ServiceOf, id: Id) -> Response:
    """Cancel a job that is not finished (202), or remove one that is, with its results (204)."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    if await jobs.delete(id, client) is None:
        return Response(status_code=204)
    return _answer(await _record(jobs, await jobs.find(id, client)), 202)


@router.post(
    "/jobs/{id}/cancel", operation_id="cancel_job", response_model=JobRecord, responses=FOUND
)
async def cancel_job(request: Request, service: ServiceOf, id: Id) -> Response:
    """Cancel a job, and keep what is done; a job that has finished meanwhile stays as it is."""
    jobs, client = _jobs(service), client_name(service, request.scope)
    return _answer(await _record(jobs, await jobs.cancel(id, client)))


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
        Literal["jsonl", "zip"] | None, Query(description="the form; without it Accept chooses")
    ] = None,
) -> Response:
    """Return the records of a job as JSON Lines, in the order in which they were finished.

    As a ZIP the images are files, and the records are in `results.jsonl`. When the server stops, a
    followed stream ends early, after a whole record; go on at the next `offset` then.

    This order never changes, so a client that has N records asks for `offset=N` next. Each record
    has the `index` of its line. With `status` only those that failed are sent, all are counted.
    """
    jobs, client = _jobs(service), client_name(service, request.scope)
    job = await jobs.find(id, client)
    chosen: Callable[[Records], Records] = failed_records if status is not None else _every
    headers = {"X-Job-State": job.state.value, "Cache-Control": "no-store", "Vary": "Accept"}
    zipped = (output or _accepted(request)) == "zip"
    found = await jobs.results(job, offset, limit, follow=follow, whole=zipped)
    if not zipped:
        content: Body = chosen(found.read())
        return StreamedBody(content, headers, media_types.JSON_LINES[0], source=found)
    images = job.operation != "classify"
    archive = ResultsZip(found.read, chosen, images=images, padded=follow)
    headers["Content-Disposition"] = f'attachment; filename="{job.id}.zip"'
    return StreamedBody(archive.pieces(), headers, media_types.ZIP, source=found)


def _every(records: Records) -> Records:
    return records


def _accepted(request: Request) -> str:
    """Return the form of results that the client prefers."""
    offers = (*media_types.JSON_LINES, media_types.ZIP)
    chosen = negotiation.parse(request.headers.get("accept")).best(offers)
    return "zip" if chosen == media_types.ZIP else "jsonl"


def _jobs(service: Service) -> "Jobs":
    if service.jobs is None:
        raise JobsDisabled(
            "this server keeps no jobs, because it has no folder for them; its operator sets "
            "DARKROOM_DATA_FOLDER"
        )
    return service.jobs


async def _record(jobs: "Jobs", job: "Job") -> JobRecord:
    """Return a job as clients see it."""
    return (await _records(jobs, [job]))[0]


async def _records(jobs: "Jobs", found: "Sequence[Job]") -> list[JobRecord]:
    """Return jobs as clients see them; only those that run are looked up one by one."""
    endings = await jobs.endings.rows.of([each.id for each in found])
    return [_shown(each, await jobs.rate(each), endings[each.id]) for each in found]


def _shown(job: "Job", rate: float | None, endings: "Mapping[str, Ending]") -> JobRecord:
    left = job.total - job.done
    end = time.time() + left / rate if rate else None
    return JobRecord(
        id=job.id,
        state=job.state.value,
        operation=job.operation,
        options=job.options,
        items=JobItemCounts(
            total=job.total, done=job.done, succeeded=job.done - job.failed, failed=job.failed
        ),
        created=_moment(job.created),
        started=_optional(job.started),
        finished=_optional(job.finished),
        expires=_optional(job.expires),
        rate=None if rate is None else round(rate, 2),
        estimated_end=_optional(end),
        concurrency=job.concurrency,
        results=f"/jobs/{job.id}/results",
        problem=job.problem,
        **{kind: _ending(each) for kind, each in endings.items()},
    )


def _ending(found: "Ending") -> JobEnding:
    attempts, reason = found.attempts, found.reason
    return JobEnding(target=found.target, state=found.state, attempts=attempts, reason=reason)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def _optional(seconds: float | None) -> datetime | None:
    return None if seconds is None else _moment(seconds)


def _answer(
    content: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    body = content.model_dump_json(exclude_none=True)
    fresh = {"Cache-Control": "no-store", **(headers or {})}
    return Response(body, status, fresh, media_types.JSON)
