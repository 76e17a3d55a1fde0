"""The permits of images of jobs."""

import asyncio

from app.admission import Admission, Limits
from app.jobs.work import BEHIND, Permission
from models.domain.job import Lane


def test_an_image_of_a_job_has_more_time_and_is_in_the_background() -> None:
    async def scenario() -> None:
        admission = Admission(Limits(images=2, bytes=100, arriving=100), clock=lambda: 1000.0)
        async with Permission(admission).image(120.0, "b") as permit:
            assert permit.deadline.remaining(1000.0) == 120.0 * BEHIND
            assert (permit.client, permit.lane) == ("b", Lane.BACKGROUND)

    asyncio.run(scenario())
