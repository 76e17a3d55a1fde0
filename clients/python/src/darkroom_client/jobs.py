"""Jobs of the synchronous client."""

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Unpack

from darkroom_client.images import Source
from darkroom_client.job_calls import JobCalls, JobOperation
from darkroom_client.job_reading import Status
from darkroom_client.manifest import spooled, upload
from darkroom_client.options import CallOptions, JobOptions
from darkroom_client.records import ImageResult, Job
from darkroom_client.sync_wire import iterate, run

Found = list[Job]


class Jobs:
    """Long batches that the server works through in the background."""

    def __init__(self, calls: JobCalls) -> None:
        self._calls = calls

    def create(
        self,
        images: Iterable[Source],
        operation: JobOperation = "classify",
        **options: Unpack[JobOptions],
    ) -> Job:
        """Make a job of images; the server has them all when this returns.

        They are collected in a temporary file, so any number of them takes the same memory. Files
        are sent with the manifest, URLs are fetched by the server. Raises OSError for a file that
        cannot be read.
        """
        with spooled(images) as path:
            return self.create_from(path, operation, **options)

    def create_from(
        self,
        path: str | Path,
        operation: JobOperation = "classify",
        **options: Unpack[JobOptions],
    ) -> Job:
        """Make a job of a manifest (`.jsonl`, `.json`), or of an archive if the server takes it."""
        return run(self._calls.create(upload(Path(path)), operation, options))

    def create_from_storage(
        self,
        source: str,
        operation: JobOperation = "classify",
        *,
        include: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Make a job of the files below an address (`s3://bucket/photos/`) that the server reads.

        `include` has patterns of names between commas: `*.jpg,*.png`.
        """
        return run(self._calls.create_from_storage(source, include, operation, options))

    def retry(self, id_: str, **options: Unpack[JobOptions]) -> Job:
        """Make a job of the images that failed in another one, which has finished.

        It has the same operation and options, but for the options that are given here; `output`
        and `webhook` are not taken over. Raises InvalidRequest if no image failed.
        """
        return run(self._calls.retry(id_, options))

    def get(self, id_: str, **options: Unpack[CallOptions]) -> Job:
        """Return a job as it is now."""
        return run(self._calls.get(id_, options))

    def list(
        self, state: str | None = None, limit: int = 20, **options: Unpack[CallOptions]
    ) -> Found:
        """Return your newest jobs, or those in one state."""
        return run(self._calls.list(state, limit, options))

    def wait(
        self,
        id_: str,
        *,
        within: float | None = None,
        progress: Callable[[Job], None] | None = None,
        **options: Unpack[CallOptions],
    ) -> Job:
        """Return a job when it has finished; raises DeadlineExceeded after `within` seconds."""
        return run(self._calls.wait(id_, within, progress, options))

    def results(
        self,
        id_: str,
        *,
        offset: int = 0,
        follow: bool = True,
        status: Status | None = None,
        out: str | Path | None = None,
        **options: Unpack[CallOptions],
    ) -> Generator[ImageResult, None, None]:
        """Yield results in the order in which they were finished, from an offset.

        With `follow`, results of a job that still runs are waited for. After a broken connection
        it goes on where it was. `status="error"` yields only images that failed, wholly or partly,
        and the offset still counts all. `out` is a folder for filtered images.
        """
        folder = None if out is None else Path(out)
        return iterate(
            self._calls.results(id_, offset, folder, options, follow=follow, status=status)
        )

    def cancel(self, id_: str, **options: Unpack[CallOptions]) -> Job:
        """Cancel a job unless it has finished; its results so far can be read, in both cases."""
        return run(self._calls.cancel(id_, options))

    def delete(self, id_: str, **options: Unpack[CallOptions]) -> None:
        """Remove a job and its results; one that has not finished is cancelled before."""
        run(self._calls.delete(id_, options))
