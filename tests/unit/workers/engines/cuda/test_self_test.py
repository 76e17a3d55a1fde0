"""Which batches a GPU's engine is tested with before it serves, and in which slots."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from models.domain.errors import ServiceError, Undecodable
from models.domain.job import Job, Labels, Result
from tests.fakes import fake_job, number_of
from workers.engines.cuda.engine import SLOTS, run_self_test
from workers.engines.cuda.nvjpeg import shared_sizes
from workers.scheduling.engine import BatchResult


class Device:
    """Slots that remember their batch, and which kinds each slot has met."""

    def __init__(self) -> None:
        self.met: Counter[tuple[int, int, int]] = Counter()
        self.jobs: dict[int, Sequence[Job]] = {}
        self.answer: Result | ServiceError = Labels((1,), (1.0,))
        self.lose = 0

    def launch(self, slot: int, jobs: Sequence[Job]) -> None:
        assert slot not in self.jobs, "the batch before was not cleared"
        self.jobs[slot] = jobs
        self.met[slot, number_of(jobs[0]), len(jobs)] += 1

    def collect(self, slot: int) -> BatchResult:
        values = [self.answer] * (len(self.jobs[slot]) - self.lose)
        return BatchResult(values, 0.0, 0.0, 0.0)

    def clear(self, slot: int) -> None:
        del self.jobs[slot]

    def test(self, batches: Mapping[str, Sequence[Job]]) -> None:
        run_self_test(range(SLOTS), batches, self.launch, self.collect, self.clear)


def batches_for(max_batch_size: int) -> dict[str, list[Job]]:
    sizes = (*shared_sizes(max_batch_size), max_batch_size)
    files = {f"{n} files": [fake_job(2)] * n for n in sizes}
    return {"filtered": [fake_job(0)], "classified": [fake_job(1)], **files}


@pytest.mark.parametrize("max_batch_size", [1, 25, 64])
def test_every_kind_meets_every_slot_whatever_the_number_of_kinds(max_batch_size: int) -> None:
    device, batches = Device(), batches_for(max_batch_size)
    device.test(batches)
    wanted = {(s, number_of(b[0]), len(b)) for s in range(SLOTS) for b in batches.values()}
    assert set(device.met) == wanted
    assert set(device.met.values()) == {1}


def test_an_error_that_comes_back_as_a_value_fails_the_test() -> None:
    device = Device()
    device.answer = Undecodable("the file is corrupt")
    with pytest.raises(RuntimeError, match="files, in slot 0: undecodable"):
        device.test({"files": [fake_job()] * 3})
