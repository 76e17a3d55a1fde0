"""How many processes of which kind a server is made of."""

import os

import pytest

from app.processes import plan as tree
from app.processes.plan import CORES_PER_WORKER, Plan
from models.settings import Settings
from workers.supervision.supervisor import ProcessSpec, Supervisor


def planned(gpus_there: int, patch: pytest.MonkeyPatch, **settings: object) -> Plan:
    patch.setattr(tree, "wanted_gpus", lambda _gpus: gpus_there)
    return Plan.of(Settings.model_validate(settings))


def test_without_a_gpu_one_process_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(0, monkeypatch) == Plan(front_ends=0, gpus=0)


def test_with_gpus_front_ends_take_the_cores_their_workers_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = planned(2, monkeypatch, threads=32, gpu_workers=3)
    assert plan == Plan(front_ends=32 - 2 * 3 * CORES_PER_WORKER, gpus=2, gpu_workers=3)
    assert planned(2, monkeypatch, threads=4) == Plan(front_ends=2, gpus=2)


def test_a_gpu_has_two_workers_where_the_cores_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(1, monkeypatch, threads=8).gpu_workers == 2
    assert planned(2, monkeypatch, threads=8).gpu_workers == 1
    assert planned(0, monkeypatch, threads=64).gpu_workers == 1


def test_a_number_that_was_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(1, monkeypatch, front_ends=5).front_ends == 5


def test_more_workers_than_can_be_counted_are_refused_before_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert planned(4, monkeypatch, gpu_workers=32).gpu_workers == 32
    with pytest.raises(ValueError, match=r"132 workers.* at most 128 .*set fewer"):
        planned(4, monkeypatch, gpu_workers=33)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[ProcessSpec]]:
    """Let nothing be started, and return what would be."""
    found: list[list[ProcessSpec]] = []

    class Noted(Supervisor):
        async def run(self) -> int:
            found.extend([*each] for each in self._groups)
            return 0

    monkeypatch.setattr(tree, "Supervisor", Noted)
    return found


@pytest.mark.parametrize(("gpus", "devices"), [(0, [None]), (1, [0, 0]), (2, [0, 1, 0, 1])])
def test_every_gpu_has_its_workers_and_front_ends_know_them_all(
    gpus: int, devices: list[int | None], groups: list[list[ProcessSpec]]
) -> None:
    tree.run(Settings(port=0), Plan(front_ends=3, gpus=gpus, gpu_workers=2))
    workers, front_ends = groups
    assert [each.orders["gpu"] for each in workers] == devices
    addresses = [each.orders["address"] for each in workers]
    assert len(set(addresses)) == len(devices)
    assert [each.orders["addresses"] for each in front_ends] == [addresses] * 3
    assert all(str(os.getpid()) in each for each in addresses)


def test_front_ends_get_the_limits_undivided_and_share_only_the_cores(
    groups: list[list[ProcessSpec]],
) -> None:
    whole = Settings(port=0, threads=8)
    tree.run(whole, Plan(front_ends=4, gpus=0))
    for each in groups[1]:
        assert each.orders["settings"] == whole.model_dump(mode="json") | {"threads": 2}
        assert each.orders["counters"] in each.descriptors
