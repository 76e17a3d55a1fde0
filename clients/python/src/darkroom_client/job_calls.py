"""The conversations about jobs, written once for both clients."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Literal
from uuid import uuid4

from darkroom_client import answers
from darkroom_client.conversation import (
    Attempts,
    Refusal,
    Wire,
    body_of,
    broken,
    refusal,
    value_of,
    wait_or_raise,
)
from darkroom_client.errors import ConnectionFailed, DeadlineExceeded, InvalidRequest
from darkroom_client.job_reading import Reading, Status
from darkroom_client.manifest import Upload
from darkroom_client.options import CallOptions, JobOptions
from darkroom_client.records import ImageResult, Job, JobPage
from darkroom_client.requests import Call, chain, check_deadline, json_text, texts
from darkroom_client.retries import Retries

JobOperation = Literal["classify", "filter", "process"]

FIRST_LOOK, LONGEST_LOOK = 0.5, 10.0
"""Seconds between two looks at a job that is waited for: the first pause, and the longest."""

PAGE = 100
"""Jobs in one page of a list; a server gives no more."""


class JobCalls:
    """Conversations about jobs by one wire."""

    def __init__(self, wire: Wire, retries: Retries) -> None:
        self._wire = wire
        self._retries = retries

    async def create(self, body: Upload, operation: JobOperation, options: JobOptions) -> Job:
        """Make a job of a file; repeated tries have the same key, and make one job."""
        headers = {
            "Content-Type": body.media_type,
            "Content-Length": str(body.size),
            "Idempotency-Key": _key(options),
        }
        fields = {"operation": operation, **_fields(options)}
        call = Call("POST", "/jobs", params=fields, headers=headers, file=body.path)
        return await value_of(self._wire, call, Job, self._attempts(options))

    async def create_from_storage(
        self, source: str, include: str | None, operation: JobOperation, options: JobOptions
    ) -> Job:
        """Make a job of the files below an address that the server reads."""
        fields = {"operation": operation, "source": source, **_fields(options)}
        if include is not None:
            fields["include"] = include
        call = Call("POST", "/jobs", params=fields, headers={"Idempotency-Key": _key(options)})
        return await value_of(self._wire, call, Job, self._attempts(options))

    async def retry(self, id_: str, options: JobOptions) -> Job:
        """Make a job of the images that failed in another one, by its operation and options."""
        before = await self.get(id_, _of_calls(options))
        fields = {"operation": before.operation, "retry_of": id_, **texts(before.options)}
        fields |= _fields(options)
        call = Call("POST", "/jobs", params=fields, headers={"Idempotency-Key": _key(options)})
        return await value_of(self._wire, call, Job, self._attempts(options))

    async def get(self, id_: str, options: CallOptions) -> Job:
        """Return a job as it is now."""
        return await value_of(self._wire, Call("GET", _path(id_)), Job, self._attempts(options))

    async def list(self, state: str | None, limit: int, options: CallOptions) -> list[Job]:
        """Return the newest jobs, page by page."""
        found: list[Job] = []
        params = {"state": state} if state else {}
        while len(found) < limit:
            params["limit"] = str(min(PAGE, limit - len(found)))
            call = Call("GET", "/jobs", params=params)
            page = await value_of(self._wire, call, JobPage, self._attempts(options))
            found += page.jobs
            if page.next is None or not page.jobs:
                break
            params["before"] = page.jobs[-1].id
        return found

    async def wait(
        self,
        id_: str,
        within: float | None,
        progress: Callable[[Job], None] | None,
        options: CallOptions,
    ) -> Job:
        """Return a job when it has finished; `progress` gets it after each look."""
        check_deadline(within)
        end = None if within is None else time.monotonic() + within
        pause = FIRST_LOOK
        while True:
            job = await self.get(id_, options)
            if progress is not None:
                progress(job)
            if job.is_finished:
                return job
            left = pause if end is None else end - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(f"job {id_} is {job.state} after {within:g} s")
            await self._wire.pause(min(pause, left))
            pause = min(LONGEST_LOOK, pause * 1.5)

    async def cancel(self, id_: str, options: CallOptions) -> Job:
        """Cancel a job unless it has finished; return it."""
        call = Call("POST", f"{_path(id_)}/cancel")
        return await value_of(self._wire, call, Job, self._attempts(options))

    async def delete(self, id_: str, options: CallOptions) -> None:
        """Cancel a job if it has not finished, then remove it and its results."""
        while not await self._delete(id_, options):
            await self.wait(id_, None, None, options)

    async def results(
        self,
        id_: str,
        offset: int,
        out: Path | None,
        options: CallOptions,
        *,
        follow: bool,
        status: Status | None,
    ) -> AsyncGenerator[ImageResult, None]:
        """Yield results from an offset; after a broken connection go on where it was.

        With `follow`, also those that are not there yet, until the job has finished.
        """
        attempts = self._attempts(options)
        reading = Reading(offset, status, follow=follow)
        while True:
            reading.begin()
            call = Call("GET", f"{_path(id_)}/results", params=reading.params())
            failed = None
            try:
                async with self._wire.send(attempts.started(call), attempts.left()) as answer:
                    if answer.status != 200:
                        failed = await refusal(answer, attempts)
                    else:
                        reading.answered(answer.headers)
                        async with aclosing(answers.records(answer.pieces())) as found:
                            async for record in found:
                                if reading.is_new():
                                    attempts.tried = 0
                                    yield await self._given(record, out)
            except ConnectionFailed as error:
                failed = broken(error, attempts)
            if failed is not None:
                await self._wait(attempts, reading, failed)
            elif reading.ended(await self.get(id_, options) if follow else None):
                return
            else:
                attempts.tried = 0  # the request succeeded, and the next one is another
                await self._wire.pause(reading.pause)

    async def _wait(self, attempts: Attempts, reading: Reading, failed: Refusal) -> None:
        """Wait before the next try, or raise; after a long answer tries are counted anew."""
        attempts.tried = 1 if reading.was_long() else max(1, attempts.tried)
        await wait_or_raise(self._wire, attempts, failed)

    async def _given(self, record: ImageResult, out: Path | None) -> ImageResult:
        return record if out is None else await self._wire.store(record, out)

    async def _delete(self, id_: str, options: CallOptions) -> bool:
        """Send DELETE; return whether the job is gone, and not only cancelled."""
        attempts = self._attempts(options)
        try:
            body = await body_of(self._wire, Call("DELETE", _path(id_)), attempts, (202, 204))
        except InvalidRequest as error:
            if error.problem.status == 404 and attempts.tried > 1:
                return True  # a try before had removed it, but its answer was lost
            raise
        return not body

    def _attempts(self, options: CallOptions | JobOptions) -> Attempts:
        check_deadline(options.get("deadline"))
        return Attempts(self._retries, options.get("deadline"), options.get("request_id") or "")


def _fields(options: JobOptions) -> dict[str, str]:
    """Return the options of a job as a query has them."""
    given = dict(options)
    for name in ("ops", "versions", "idempotency_key"):
        given.pop(name, None)
    fields = texts(given)
    if options.get("output") not in (None, "labels"):
        fields["vector_format"] = "base64"  # exact and short
    if "ops" in options:
        fields["ops"] = json_text(chain(options["ops"]))
    if "versions" in options:
        fields["versions"] = json_text([dict(each) for each in options["versions"]])
    return fields


def _of_calls(options: JobOptions) -> CallOptions:
    return {"deadline": options.get("deadline"), "request_id": options.get("request_id")}


def _key(options: JobOptions) -> str:
    return options.get("idempotency_key") or str(uuid4())


def _path(id_: str) -> str:
    """Return the path of a job; raises ValueError for an id that is none."""
    if not id_ or not all(char.isascii() and (char.isalnum() or char in "-_") for char in id_):
        raise ValueError(f"{id_[:64]!r} is not the id of a job")
    return f"/jobs/{id_}"
