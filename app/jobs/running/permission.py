"""Ask for permission to work on one image of a job, after the requests of interactive clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.admission import Admission, Permit
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded

JOBS = "the jobs of all clients"
"""The client that images of jobs count for."""

BEHIND = 10
"""Times as long that an image may take on threads of low priority. Linux gives one of them a third
of what each other thread on its core gets (`models/thread_priority.py`); where requests decode and
compute on all cores, and the job too, that is an eighth of the core."""

LONGEST_WAIT = 5.0
"""Seconds after which a refused image asks again at the latest."""


class Permission:
    """Gives permits to images of jobs; every image asks here before anything is read of it.

    All of them count as one client in the background, so while anybody else wants something they
    hold only the places that are theirs, and go into the bulk lane of the batcher. An image that
    admission refuses waits, and asks again: jobs are never refused because others are busy. Jobs
    take turns with each other in the runner.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        admission.background = admission.counters.key(f"client {JOBS}")

    @asynccontextmanager
    async def image(self, seconds: float, client: str) -> AsyncIterator[Permit]:
        """Hold a permit for one image, which has `seconds` once it is given; raises Draining.

        Its URL is fetched at the cost of `client`, so that the jobs of others find their share.

        Where threads of low priority work on it, it has BEHIND times as many: it must not fail
        because requests take the time.
        """
        while True:
            try:
                permit = self._permit(seconds)
                break
            except Overloaded as error:
                await asyncio.sleep(min(error.retry_after, LONGEST_WAIT))
        with permit:
            permit.fetches_for = client
            yield permit

    def _permit(self, seconds: float) -> Permit:
        admission = self._admission
        behind = BEHIND if admission.line.behind is not None else 1
        deadline = Deadline.after(behind * seconds, admission.clock())
        # A rate limit is about requests; how many images jobs have under way is limited already.
        permit = admission.enter(JOBS, deadline, rated=True)
        try:
            permit.grow(1, 0)
        except BaseException:
            permit.release()
            raise
        return permit
