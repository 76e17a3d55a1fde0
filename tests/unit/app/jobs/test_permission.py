"""The permits of images of jobs."""

import asyncio

import pytest

from app.admission import Admission, Limits
from app.jobs.work import BEHIND, Permission


@pytest.mark.parametrize(("yields", "seconds"), [(False, 120.0), (True, 120.0 * BEHIND)])
def test_an_image_that_yields_to_requests_has_more_time(yields: bool, seconds: float) -> None:
    async def scenario() -> None:
        admission = Admission(Limits(images=2, bytes=100, arriving=100), clock=lambda: 1000.0)
        if yields:
            admission.with_background(2)
        async with Permission(admission).image(120.0, "b") as permit:
            assert permit.deadline.remaining(1000.0) == seconds
            assert permit.fetches_for == "b"

    asyncio.run(scenario())
