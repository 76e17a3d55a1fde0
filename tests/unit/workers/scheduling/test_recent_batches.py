"""What a worker remembers of its last batches."""

import pytest

from models.domain.errors import Undecodable
from models.domain.job import Job, Labels, ReleaseReason
from tests.fakes import FakeClock, fake_job
from workers.filters.registry import parse_one
from workers.operations import Classify, FilterChain
from workers.scheduling.batch import Batch, new_id
from workers.scheduling.engine import BatchResult
from workers.scheduling.recent_batches import RecentBatches
from workers.scheduling.ticket import Ticket

FOUND = Labels((1,), (0.5,))


def batch(*jobs: Job, waits: tuple[float, ...], launched_at: float = 100.0, id_: str = "") -> Batch:
    tickets = []
    for job, waited in zip(jobs, waits, strict=True):
        ticket = Ticket(job, lambda _outcomes: None)
        ticket.enqueued_at = launched_at - waited
        tickets.append(ticket)
    return Batch(tickets, ReleaseReason.DELAY, launched_at, id_)


def remembered(n: int = 2) -> RecentBatches:
    recent = RecentBatches(n, FakeClock(103.0), FakeClock(5000.0))
    recent.device = "cpu"
    return recent


def test_a_batch_is_remembered_with_its_images_waits_and_stages() -> None:
    source = fake_job(n_pixels=7).image
    jobs = (
        Job(Classify(), source, request_id="a"),
        Job(Classify(), source, request_id="b"),
    )
    recent = remembered()
    done = batch(*jobs, waits=(0.5, 0.25), id_="1-1")
    recent.observe(done, BatchResult([FOUND, Undecodable("broken")], 0.1, 0.2, 0.3, 0.4))
    (record,) = recent.last(10)
    assert (record.id, record.device, record.reason) == ("1-1", "cpu", "delay")
    assert (record.operation, record.network, record.filters) == ("classify", "resnet18", ())
    assert (record.size, record.pixels, record.longest_wait) == (2, 14, 0.5)
    assert (record.upload, record.compute, record.download, record.decode) == (0.1, 0.2, 0.3, 0.4)
    assert record.released_at == 4997.0
    assert [(i.request_id, i.waited, i.outcome) for i in record.images] == [
        ("a", 0.5, "ok"),
        ("b", 0.25, "undecodable"),
    ]


def test_filters_are_named_in_their_order() -> None:
    chain = FilterChain((parse_one("sepia", {}), parse_one("invert", {})))
    recent = remembered()
    recent.observe(batch(Job(chain, fake_job().image), waits=(0,)), BatchResult([FOUND], 0, 0, 0))
    assert recent.last(1)[0].filters == ("sepia", "invert")


@pytest.mark.parametrize(("asked", "found"), [(10, ["1", "2"]), (1, ["2"]), (0, [])])
def test_only_the_last_batches_are_remembered(asked: int, found: list[str]) -> None:
    recent = remembered(2)
    for number in range(3):
        done = batch(fake_job(), waits=(0,), id_=str(number))
        recent.observe(done, BatchResult([FOUND], 0, 0, 0))
    assert [each.id for each in recent.last(asked)] == found


def test_nothing_is_remembered_by_default() -> None:
    recent = remembered(0)
    recent.observe(batch(fake_job(), waits=(0,)), BatchResult([FOUND], 0, 0, 0))
    assert recent.last(10) == []


def test_batches_have_ids_of_their_own() -> None:
    assert new_id() != new_id()
