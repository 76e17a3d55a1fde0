"""The HTTP bodies of jobs."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from models.api.schemas import ModelRecord, Problem

JobState = Literal["queued", "running", "succeeded", "failed", "cancelling", "cancelled", "expired"]
"""The states of a job; the last four but `cancelling` never change, except to `expired`."""

JobOperation = Literal["classify", "filter", "process"]
"""What a job does with each image: the same as the endpoint of that name."""


MOST_CONCURRENCY = 65_536
"""The highest limit that a job may have; what the server does is limited by its settings."""


LAST = 2e10
"""The last moment, in the year 2603. Pydantic takes a larger number for milliseconds."""

Moment = Annotated[datetime, BeforeValidator(lambda seconds: round(min(seconds, LAST), 3))]
"""A moment, made of the seconds since 1970."""


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
    max_failures: int | None = Field(
        None,
        ge=0,
        le=2**31 - 1,
        description="images that may fail; the job ends with the chunk in which more have failed",
    )


class JobItemCounts(BaseModel):
    """The items of a job by their state."""

    total: int
    done: int = Field(description="items whose record is in the results")
    succeeded: int
    failed: int = Field(description="items whose record has an error; partial ones count as failed")


class JobEnding(BaseModel):
    """Where something of a job goes when it has ended, and what became of it."""

    target: str = Field(description="storage address of the results, or URL of the webhook")
    state: Literal["waiting", "done", "failed"]
    attempts: int
    reason: str | None = Field(None, description="how the last try ended")


class JobRecord(BaseModel):
    """One job."""

    id: str
    state: JobState
    operation: JobOperation
    options: dict[str, Any] = Field(description="as they were given")
    items: JobItemCounts
    created: Moment
    started: Moment | None = Field(None, description="when the first image was begun")
    finished: Moment | None = None
    expires: Moment | None = Field(None, description="when the results of a finished job go")
    concurrency: int | None = Field(None, description="images in work at a time, at most")
    max_failures: int | None = Field(None, description="images that may fail before the job ends")
    rate: float | None = Field(None, description="images a second since the start; of running jobs")
    estimated_end: Moment | None = Field(None, description="by that rate")
    results: str = Field(description="path of the results")
    model: ModelRecord | None = Field(
        None, description="which labels the images, once the job was begun"
    )
    problem: Problem | None = Field(None, description="why the job failed, or why it waits")
    destination: JobEnding | None = Field(None, description="where images and results are written")
    webhook: JobEnding | None = Field(None, description="what is called when the job has ended")


class JobListing(BaseModel):
    """Jobs of the client, the newest first."""

    jobs: list[JobRecord]
    next: str | None = Field(None, description="path of the next page; none: this is the last")
