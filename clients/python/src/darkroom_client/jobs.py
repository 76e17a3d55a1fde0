"""Jobs, long batches in the background of a server: one class for both clients."""

import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar, Unpack
from uuid import uuid4

from darkroom_client.conversation import (
    Attempts,
    Conversations,
    Refusal,
    body_of,
    tried,
    value_of,
    wait_or_raise,
)
from darkroom_client.errors import DeadlineExceeded, InvalidRequest
from darkroom_client.files import stored
from darkroom_client.images import Source
from darkroom_client.manifest import upload, write_manifest
from darkroom_client.options import CallOptions, JobOptions
from darkroom_client.records import FINISHED, ImageResult, Job, JobPage
from darkroom_client.requests import Call, chain, check_deadline, json_text, texts

JobOperation = Literal["classify", "filter", "process"]
Status = Literal["error"]

FIRST_LOOK, LONGEST_LOOK = 0.5, 10.0
"""Seconds between two looks at a job that is waited for: the first pause, and the longest."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two requests for results that brought none: the first pause, and the longest."""

LONG = 60.0
"""Seconds after which a connection that broke is no failed try: the job had nothing to tell."""

PAGE = 100
"""Jobs in one page of a list; a server gives no more."""

Found = list[Job]

JobT = TypeVar("JobT")
JobsT = TypeVar("JobsT")
StreamT = TypeVar("StreamT")
DoneT = TypeVar("DoneT")


class Jobs(Conversations, Generic[JobT, JobsT, StreamT, DoneT]):
    """Long batches that the server works through in the background."""

    def create(
        self,
        images: Iterable[Source],
        operation: JobOperation = "classify",
        **options: Unpack[JobOptions],
    ) -> JobT:
        """Make a job of images; the server has them all when this returns.

        The images are collected in a temporary file, so any number of them takes the same memory.
        Files are sent with the manifest, URLs are fetched by the server. Raises OSError for a file
        that cannot be read.
        """
        return self._run(self._create(images, operation, options))

    def create_from(
        self,
        path: str | Path,
        operation: JobOperation = "classify",
        **options: Unpack[JobOptions],
    ) -> JobT:
        """Make a job of a manifest (`.jsonl`, `.json`), or of an archive if the server takes it."""
        return self._run(self._create_from(Path(path), operation, options))

    def create_from_storage(
        self,
        source: str,
        operation: JobOperation = "classify",
        *,
        include: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobT:
        """Make a job of the files below an address (`s3://bucket/photos/`) that the server reads.

        `include` has patterns of names between commas: `*.jpg,*.png`.
        """
        fields = {"operation": operation, "source": source, **_fields(options)}
        if include is not None:
            fields["include"] = include
        return self._run(self._post("/jobs", fields, options))

    def retry(self, id_: str, **options: Unpack[JobOptions]) -> JobT:
        """Make a job of the images that failed in another one, which has finished.

        The new job has the same operation and options, but for the options that are given here;
        `output` and `webhook` are not taken over. Raises InvalidRequest if no image failed.
        """
        return self._run(self._retry(id_, options))

    def get(self, id_: str, **options: Unpack[CallOptions]) -> JobT:
        """Return a job as it is now."""
        return self._run(self._get(id_, options))

    def list(
        self, state: str | None = None, limit: int = 20, **options: Unpack[CallOptions]
    ) -> JobsT:
        """Return your newest jobs, or those in one state."""
        return self._run(self._list(state, limit, options))

    def wait(
        self,
        id_: str,
        *,
        within: float | None = None,
        progress: Callable[[Job], None] | None = None,
        **options: Unpack[CallOptions],
    ) -> JobT:
        """Return a job when it has finished; raises DeadlineExceeded after `within` seconds.

        `progress` gets the job after each look.
        """
        return self._run(self._wait(id_, within, progress, options))

    def results(
        self,
        id_: str,
        *,
        offset: int = 0,
        follow: bool = True,
        status: Status | None = None,
        out: str | Path | None = None,
        **options: Unpack[CallOptions],
    ) -> StreamT:
        """Yield results in the order in which they were finished, from an offset.

        With `follow`, results of a job that still runs are waited for. After a broken connection
        reading goes on where it was. `status="error"` yields only images that failed, wholly or
        partly, and the offset still counts all. `out` is a folder for filtered images.
        """
        reading = Reading(offset, status, follow=follow)
        return self._iterate(self._results(id_, reading, out, options))

    def cancel(self, id_: str, **options: Unpack[CallOptions]) -> JobT:
        """Cancel a job unless it has finished; its results so far can be read, in both cases."""
        return self._run(self._post(f"{_path(id_)}/cancel", {}, options))

    def delete(self, id_: str, **options: Unpack[CallOptions]) -> DoneT:
        """Remove a job and its results; a job that has not finished is cancelled before."""
        return self._run(self._delete(id_, options))

    async def _create(
        self, images: Iterable[Source], operation: JobOperation, options: JobOptions
    ) -> Job:
        with tempfile.NamedTemporaryFile(prefix="darkroom-", suffix=".jsonl") as file:
            await self._wire.call(write_manifest, images, Path(file.name))
            return await self._create_from(Path(file.name), operation, options)

    async def _create_from(self, path: Path, operation: JobOperation, options: JobOptions) -> Job:
        body = upload(path)
        headers = {"Content-Type": body.media_type, "Content-Length": str(body.size)}
        fields = {"operation": operation, **_fields(options)}
        return await self._post("/jobs", fields, options, headers, body.path)

    async def _retry(self, id_: str, options: JobOptions) -> Job:
        call_options: CallOptions = {
            "deadline": options.get("deadline"),
            "request_id": options.get("request_id"),
        }
        before = await self._get(id_, call_options)
        fields = {"operation": before.operation, "retry_of": id_, **texts(before.options)}
        return await self._post("/jobs", fields | _fields(options), options)

    async def _post(
        self,
        path: str,
        fields: Mapping[str, str],
        options: CallOptions | JobOptions,
        headers: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Job:
        """Send a request that changes jobs; repeated tries have the same key, and make one job."""
        key = str(options.get("idempotency_key") or uuid4())
        headers = {**(headers or {}), "Idempotency-Key": key}
        call = Call("POST", path, params=fields, headers=headers, file=file)
        return await value_of(self._wire, call, Job, self._attempts(options))

    async def _get(self, id_: str, options: CallOptions) -> Job:
        return await value_of(self._wire, Call("GET", _path(id_)), Job, self._attempts(options))

    async def _list(self, state: str | None, limit: int, options: CallOptions) -> Found:
        found: Found = []
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

    async def _wait(
        self,
        id_: str,
        within: float | None,
        progress: Callable[[Job], None] | None,
        options: CallOptions,
    ) -> Job:
        check_deadline(within)
        end = None if within is None else time.monotonic() + within
        pause = FIRST_LOOK
        while True:
            job = await self._get(id_, options)
            if progress is not None:
                progress(job)
            if job.is_finished:
                return job
            left = pause if end is None else end - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(f"job {id_} is {job.state} after {within:g} s")
            await self._wire.pause(min(pause, left))
            pause = min(LONGEST_LOOK, pause * 1.5)

    async def _delete(self, id_: str, options: CallOptions) -> None:
        while True:
            attempts = self._attempts(options)
            try:
                call = Call("DELETE", _path(id_))
                if not await body_of(self._wire, call, attempts, (202, 204)):
                    return
            except InvalidRequest as error:
                if error.problem.status == 404 and attempts.tried > 1:
                    return  # a try before had removed the job, but its answer was lost
                raise
            await self._wait(id_, None, None, options)  # the job was only cancelled

    async def _results(
        self, id_: str, reading: "Reading", out: str | Path | None, options: CallOptions
    ) -> AsyncGenerator[ImageResult, None]:
        attempts = self._attempts(options)
        while True:
            reading.begin()
            call = Call("GET", f"{_path(id_)}/results", params=reading.params())
            failed: Refusal | None = None
            async with aclosing(tried(self._wire, call, attempts, reading.answered)) as found:
                async for each in found:
                    if isinstance(each, Refusal):
                        failed = each
                    elif reading.is_new():
                        attempts.tried = 0
                        yield (
                            each if out is None else await self._wire.call(stored, each, Path(out))
                        )
            if failed is not None:  # after a long answer tries are counted anew
                attempts.tried = 1 if reading.was_long() else max(1, attempts.tried)
                await wait_or_raise(self._wire, attempts, failed)
            elif reading.ended(await self._get(id_, options) if reading.follow else None):
                return
            else:
                attempts.tried = 0  # the request succeeded, and the next one is another
                await self._wire.pause(reading.pause)

    def _attempts(self, options: CallOptions | JobOptions) -> Attempts:
        return Attempts.of(self._retries, options)


@dataclass(slots=True)
class Reading:
    """The place in the results of a job.

    The offset counts all results. With `status` the server sends only some of them, so a repeated
    request begins at the first offset again, and as many results as were read are skipped.
    """

    offset: int
    status: Status | None
    follow: bool
    pause: float = 0.0
    _read: int = 0
    _skip: int = 0
    _before: int = 0
    _final: bool = False
    _begun: float = 0.0

    def begin(self) -> None:
        """Begin one more request."""
        self._before = self._read
        self._skip = self._read if self.status else 0
        self._final = False
        self._begun = time.monotonic()

    def params(self) -> dict[str, str]:
        """Return the query of the request."""
        params = {"offset": str(self.offset), "follow": "true" if self.follow else "false"}
        return params | ({"status": self.status} if self.status else {})

    def answered(self, headers: Mapping[str, str]) -> None:
        """Remember whether the job had finished before its results were sent."""
        self._final = headers.get("x-job-state") in FINISHED

    def is_new(self) -> bool:
        """Count a result; return whether no request before has brought it."""
        if self._skip:
            self._skip -= 1
            return False
        self._read += 1
        if not self.status:
            self.offset += 1
        return True

    def was_long(self) -> bool:
        """Return whether the request took so long that its end is no failed try."""
        return time.monotonic() - self._begun > LONG

    def ended(self, job: Job | None) -> bool:
        """Return whether there is nothing more to read; without `follow` there is no job to ask.

        Sets the pause before the next request, which is none after one that brought results.
        """
        if self._read > self._before:
            self.pause = 0.0
        else:
            self.pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, self.pause * 2))
        return job is None or (self._final if self.status else job.done_at(self.offset))


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


def _path(id_: str) -> str:
    """Return the path of a job; raises ValueError for an id that is none."""
    if not id_ or not all(char.isascii() and (char.isalnum() or char in "-_") for char in id_):
        raise ValueError(f"{id_[:64]!r} is not the id of a job")
    return f"/jobs/{id_}"
