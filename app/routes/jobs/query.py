"""Read the query of `POST /jobs`: what concerns the job, and what is left for its operation."""

from typing import TYPE_CHECKING, Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from app.http.options import read
from app.jobs.submission.asked import Asked, Source
from models.domain.errors import FieldError, InvalidParameter

if TYPE_CHECKING:  # it imports SQLAlchemy, which only servers with jobs need
    from app.jobs.jobs import Jobs

_OF_THE_JOB = ("source", "include", "retry_of", "destination", "webhook", "concurrency")


MOST_CONCURRENCY = 65_536
"""The highest limit that a job may have; what the server does is limited by its settings."""


class JobQuery(BaseModel):
    """Options of a job, whatever its operation is."""

    model_config = ConfigDict(extra="forbid")

    source: str | None = Field(
        None, max_length=8192, description="address of a folder whose files are the images"
    )
    include: str | None = Field(None, max_length=1000, description="patterns of names, by commas")
    retry_of: str | None = Field(
        None,
        max_length=64,
        description="job whose failed items are tried again; those not done too, if it failed",
    )
    destination: str | None = Field(
        None, max_length=4096, description="address below which the results are written"
    )
    webhook: str | None = Field(None, max_length=2048, description="URL that is called at the end")
    concurrency: int | None = Field(
        None,
        ge=1,
        le=MOST_CONCURRENCY,
        description="images of the job in work at a time, at most; none: the server chooses",
    )


def options_of(request: Request) -> tuple[dict[str, Any], JobQuery]:
    """Return the options of the operation, and those of the job."""
    given = dict[str, Any]()
    for name, value in request.query_params.multi_items():
        if name in given:
            wrong = FieldError(name, "given more than once", value)
            raise InvalidParameter(f"{name[:60]}: {wrong.message}", [wrong])
        given[name] = value
    del given["operation"]
    query = {name: given.pop(name) for name in _OF_THE_JOB if name in given}
    return given, read(JobQuery, query)


def asked_for(
    jobs: "Jobs", client: str, operation: str, options: dict[str, Any], query: JobQuery
) -> Asked:
    """Return what a client asks for, after its addresses were checked; raises ServiceError."""
    storage = jobs.storage
    if query.webhook is not None:
        jobs.endings.sender.check(query.webhook)
    destination = None
    if query.destination is not None:
        destination = str(storage.writable(query.destination))
    source = None
    if query.source is not None and query.retry_of is not None:
        raise InvalidParameter("source: give it or `retry_of`, not both")
    if query.source is not None:
        patterns = tuple(each for each in (query.include or "").split(",") if each)
        source = Source(storage.readable(query.source), patterns)
    elif query.include is not None:
        raise InvalidParameter("include: it chooses names below `source`, which is missing")
    elif query.retry_of is not None:
        source = Source(retry_of=query.retry_of)
    return Asked(
        client, operation, options, None, source, destination, query.webhook, query.concurrency
    )
