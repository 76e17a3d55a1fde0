"""The test of a GPU's engine before it serves: every kind of batch in every slot.

Each slot owns memory, events and a decoder of its own, so work that succeeds in one may fail in
another. The slots are tested one by one and never taken from the queue of free slots: that queue
gives the same slot to the same kind whenever the number of kinds is a multiple of the number of
slots.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from models.domain.errors import ServiceError
from models.domain.job import Job
from workers.scheduling.engine import BatchResult

SlotT = TypeVar("SlotT")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of batch: the same job `size` times."""

    name: str
    job: Job
    size: int


class SelfTestFailed(RuntimeError):
    """A batch of the self-test failed, so this device cannot be used."""


def run_self_test(
    slots: Sequence[SlotT],
    kinds: Sequence[Kind],
    launch: Callable[[SlotT, Sequence[Job]], None],
    collect: Callable[[SlotT], BatchResult],
    clear: Callable[[SlotT], None],
) -> None:
    """Run every kind in every slot; SelfTestFailed when an answer is an error or is missing."""
    for number, slot in enumerate(slots):
        for kind in kinds:
            launch(slot, [kind.job] * kind.size)
            values = collect(slot).values
            clear(slot)
            where = f"{kind.name}, {kind.size} at a time, in slot {number}"
            if len(values) != kind.size:
                raise SelfTestFailed(f"{where}: {len(values)} answers came")
            for value in values:
                if isinstance(value, ServiceError):
                    raise SelfTestFailed(f"{where}: {value.code}: {value.detail}")


def sizes(max_batch_size: int, filled_up: Callable[[int], int]) -> list[int]:
    """Return the batch sizes that a decoder works in, none above the largest batch."""
    filled = {filled_up(n) for n in range(1, max_batch_size + 1)}
    return sorted({min(size, max_batch_size) for size in filled})
