"""Refusals that are decided from a request's headers."""

import asyncio
from contextlib import suppress

import pytest

from app.admission import Admission, Amount, Limits
from app.admission.counts.fields import Total
from app.admission.prediction.reservations import LONGEST as RESERVED
from app.admission.prediction.reservations import PART
from app.admission.prediction.targets import LONGEST, MOST_TARGETS, TargetKinds, target_of
from app.http.headers import media_type
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from models.domain.job import ReleaseReason, Trace
from tests.unit.app.admission.simulation import PIXELS, Simulation, simulate

SLOW, QUICK = ("/filter", b"name=slow"), ("/filter", b"name=quick")


def trace(seconds: float) -> Trace:
    return Trace(0, 0, 0, seconds, 0, 1, 8, ReleaseReason.IDLE)


def busy(server: Simulation) -> Admission:
    """Return an admission with one second of admitted work, of which one second is done in a
    second.
    """
    admission = server.admission
    admission.forecast.costs.learn("slow", PIXELS, trace(1.0))
    admission.forecast.costs.learn("quick", PIXELS, trace(0.01))
    admission.targets.note(SLOW, ("slow",))
    admission.targets.note(QUICK, ("quick",))
    admission.forecast.capacity.per_second = 1.0
    admission.forecast.charge(server.counters.key("client other"), 1_000_000)
    return admission


def test_the_work_of_the_same_target_is_what_must_fit_before_the_deadline() -> None:
    async def scenario() -> None:
        admission = busy(Simulation())
        assert admission.refusal("a", 1.8, 100, QUICK) is None
        error = admission.refusal("a", 1.8, 100, SLOW)
        assert error is not None
        assert error.reason == "deadline"
        assert admission.refusal("a", 30.0, 100, SLOW) is None

    simulate(scenario())


def test_work_that_the_headers_do_not_tell_counts_as_the_least_that_is_known() -> None:
    async def scenario() -> None:
        admission = busy(Simulation())
        assert admission.refusal("a", 1.8, 100, None) is None
        assert admission.refusal("a", 1.8, 100, ("/filter", b"unseen")) is None
        assert admission.refusal("a", 0.3, 100, None) is not None

    simulate(scenario())


def test_a_request_whose_headers_were_just_checked_is_not_checked_again() -> None:
    async def scenario() -> None:
        admission = busy(Simulation())
        late = Deadline(admission.clock() + 0.3)
        with pytest.raises(Overloaded):
            admission.enter("a", late)
        admission.enter("a", late, foreseen=admission.entered).release()

    simulate(scenario())


@pytest.mark.parametrize("checked", [True, False])
def test_requests_whose_headers_are_checked_at_once_do_not_all_enter(checked: bool) -> None:
    async def scenario() -> None:
        server = Simulation()
        admission, entered = busy(server), 0
        foreseen = []
        for _ in range(10):
            assert admission.refusal("a", 6.0, 100, SLOW) is None
            foreseen.append(admission.entered if checked else None)
        for each in foreseen:
            deadline = Deadline.after(6.0, server.clock())
            with suppress(Overloaded):
                permit = admission.enter("a", deadline, kinds=("slow",), foreseen=each)
                permit.arrives(50, announced=100)
                entered += 1
        assert entered == 3  # the prediction has a margin

    simulate(scenario())


def test_images_and_bytes_over_the_limits_are_refused_as_admission_refuses_them() -> None:
    async def scenario() -> None:
        admission = Admission(Limits(images=2, bytes=100, arriving=100))
        with admission.admit(1, 90, "b"):
            error = admission.refusal("a", 30.0, 20, None)
            assert error is not None
            assert error.reason == "bytes_in_flight"
            assert admission.refusal("a", 30.0, 10, None) is None
            with admission.admit(1, 0, "c"):
                error = admission.refusal("a", 30.0, 0, None)
                assert error is not None
                assert error.reason == "images_in_flight"
        assert admission.held == Amount(0, 0)

    asyncio.run(scenario())


def test_a_decision_counts_nothing() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission = busy(server)
        before = [server.counters.total(field) for field in Total]
        admission.refusal("a", 1.8, 100, SLOW)
        admission.refusal("a", 30.0, 100, QUICK)
        assert [server.counters.total(field) for field in Total] == before

    simulate(scenario())


def test_work_is_reserved_while_a_body_arrives_and_charged_once_when_it_is_there() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission = busy(server)
        before = server.counters.total(Total.WORK)
        with admission.enter("a", Deadline.after(30.0, server.clock()), kinds=("slow",)) as permit:
            assert server.counters.total(Total.WORK) == before, "nothing has come"
            permit.arrives(PART - 1, announced=PART * PART)
            assert server.counters.total(Total.WORK) == before, "too little has come"
            permit.arrives(1, announced=PART * PART)
            reserved = server.counters.total(Total.WORK) - before
            assert reserved == admission.forecast.least_work(("slow",))[0] > 0
            permit.complete(100)
            permit.expect(1, "slow")
            assert server.counters.total(Total.WORK) - before == reserved
        assert server.counters.total(Total.WORK) == before

    simulate(scenario())


def test_reserved_work_is_let_in_although_later_requests_came_before_its_body() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission, far = busy(server), Deadline.after(5.0, server.clock())
        with admission.enter("a", far, kinds=("slow",)) as permit:
            permit.arrives(50, announced=100)
            admission.forecast.charge(server.counters.key("client a"), 5_000_000)
            assert admission.refusal("a", 5.0, 100, SLOW) is not None
            permit.complete(100)
            permit.expect(1, "slow")
            with pytest.raises(Overloaded):
                permit.expect(1, "slow")  # nothing is reserved for it

    simulate(scenario())


def test_work_of_unknown_cost_for_which_nothing_was_reserved_is_refused_as_before() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission = busy(server)
        with admission.enter("a", Deadline.after(1.4, server.clock())) as permit:
            admission.forecast.charge(server.counters.key("client a"), 5_000_000)
            permit.complete(100)
            with pytest.raises(Overloaded):
                permit.expect(1)

    simulate(scenario())


def test_a_body_that_is_slow_to_arrive_loses_the_work_that_was_reserved_for_it() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission = busy(server)
        before = server.counters.total(Total.WORK)
        with admission.enter("a", kinds=("slow",)) as permit:
            permit.arrives(50, announced=100)
            await asyncio.sleep(RESERVED - 0.01)
            assert admission.refusal("b", 30.0, 100, QUICK) is None
            assert server.counters.total(Total.WORK) > before
            await asyncio.sleep(0.01)
            assert admission.refusal("b", 30.0, 100, QUICK) is None
            assert server.counters.total(Total.WORK) == before
        assert server.counters.total(Total.WORK) == before

    simulate(scenario())


def test_reserved_work_is_taken_back_also_if_no_other_request_comes() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission = busy(server)
        before = server.counters.total(Total.WORK)
        with admission.enter("a", kinds=("slow",)) as permit:
            permit.arrives(50, announced=100)
            await asyncio.sleep(RESERVED / 2)
            with admission.enter("b", kinds=("slow",)) as other:
                other.arrives(50, announced=100)
                await asyncio.sleep(RESERVED / 2 + 0.01)
                reserved = admission.forecast.least_work(("slow",))[0]
                assert server.counters.total(Total.WORK) == before + reserved
                await asyncio.sleep(RESERVED / 2)
                assert server.counters.total(Total.WORK) == before

    simulate(scenario())


def test_bodies_that_may_hold_options_have_no_target() -> None:
    assert target_of("/filter", b"name=sobel", "image/jpeg") == ("/filter", b"name=sobel")
    assert target_of("/filter", b"name=sobel", "") == ("/filter", b"name=sobel")
    assert target_of("/filter", b"", media_type("Multipart/Form-Data; boundary=b")) is None
    assert target_of("/filter", b"", "application/json") is None


def test_targets_are_forgotten_oldest_first_and_long_ones_are_never_remembered() -> None:
    targets = TargetKinds()
    for number in range(MOST_TARGETS + 1):
        targets.note(("/filter", b"%d" % number), (number,))
    assert targets.of(("/filter", b"0")) == ()
    assert targets.of(("/filter", b"1")) == (1,)
    targets.note(("/filter", b"x" * LONGEST), ("x",))
    assert targets.of(("/filter", b"x" * LONGEST)) == ()


def test_a_refusal_lasts_until_the_work_that_is_done_meanwhile_makes_room() -> None:
    async def scenario() -> None:
        server = Simulation()
        admission = busy(server)
        error = admission.refusal("a", 1.8, 100, SLOW)
        assert error is not None
        assert error.lasts > 0
        key = server.counters.key("client other")
        done = int(error.lasts * 1_000_000)
        admission.forecast.charge(key, -done + 10_000)
        assert admission.refusal("a", 1.8, 100, SLOW) is not None
        admission.forecast.charge(key, -20_000)
        assert admission.refusal("a", 1.8, 100, SLOW) is None

    simulate(scenario())


def test_inference_requests_do_not_share_the_kinds_of_another() -> None:
    """Their bodies say whether the costly logits or labels are wanted, whatever their type is."""
    for path in ("/v2/models/resnet18/infer", "/v2/models/resnet18/versions/1/infer"):
        assert target_of(path, b"", "application/octet-stream") is None
    assert target_of("/classify", b"", "application/octet-stream") == ("/classify", b"")
