"""How far the results of a job are read, over several requests. Nothing here does I/O."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from darkroom_client.records import FINISHED, Job

Status = Literal["error"]

LONG = 60.0
"""Seconds after which a connection that broke is no failed try: the job had nothing to tell."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two requests for results that brought none: the first pause, and the longest."""


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
