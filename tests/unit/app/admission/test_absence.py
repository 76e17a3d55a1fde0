"""Admission while no worker is running: a request waits for it or is refused, by its deadline."""

import pytest

from app.admission import Admission
from app.admission.permits import Limits
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from tests.fakes import FakeClock


def test_what_cannot_end_before_the_worker_is_back_is_refused_with_that_time() -> None:
    clock = FakeClock(100.0)
    admission = Admission(Limits(8, 1000, 1000), clock=clock)
    admission.account.absence = lambda: 4.0
    with pytest.raises(Overloaded) as caught:
        admission.enter(deadline=Deadline.after(3.0, clock()))
    assert caught.value.retry_after == 4.0
    with admission.enter(deadline=Deadline.after(30.0, clock())):
        pass


def test_while_a_worker_is_there_an_idle_server_refuses_nothing() -> None:
    clock = FakeClock(100.0)
    with Admission(Limits(8, 1000, 1000), clock=clock).enter(deadline=Deadline.after(0.001, 100.0)):
        pass
