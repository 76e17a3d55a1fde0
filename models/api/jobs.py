"""The HTTP bodies of jobs."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from models.api.schemas import Problem

JobState = Literal["queued", "running", "succeeded", "failed", "cancelling", "cancelled", "expired"]
"""The states of a job; the last four but `cancelling` never change, except to `expired`."""

JobOperation = Literal["classify", "filter", "process"]
"""What a job does with each image: the same as the endpoint of that name."""


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
    created: datetime
    started: datetime | None = Field(None, description="when the first image was begun")
    finished: datetime | None = None
    expires: datetime | None = Field(None, description="when the results of a finished job go")
    concurrency: int | None = Field(None, description="images in work at a time, at most")
    max_failures: int | None = Field(None, description="images that may fail before the job ends")
    rate: float | None = Field(None, description="images a second since the start; of running jobs")
    estimated_end: datetime | None = Field(None, description="by that rate")
    results: str = Field(description="path of the results")
    problem: Problem | None = Field(None, description="why the job failed, or why it waits")
    destination: JobEnding | None = Field(None, description="where images and results are written")
    webhook: JobEnding | None = Field(None, description="what is called when the job has ended")


class JobListing(BaseModel):
    """Jobs of the client, the newest first."""

    jobs: list[JobRecord]
    next: str | None = Field(None, description="path of the next page; none: this is the last")
