"""How many processes of which kind a server is made of."""

import os

import pytest

from app.processes import plan as tree
from app.processes.plan import CORES_PER_WORKER, Plan
from models.settings import Settings
from workers.supervision.supervisor import ProcessSpec, Supervisor


@pytest.mark.parametrize(
    ("gpus", "settings", "plan"),
    [
        (0, {}, Plan(front_ends=0, gpus=0)),
        (0, {"threads": 64}, Plan(front_ends=0, gpus=0)),
        (2, {"threads": 32, "gpu_workers": 3}, Plan(32 - 2 * 3 * CORES_PER_WORKER, 2, 3)),
        (2, {"threads": 4}, Plan(2, 2)),
        (1, {"threads": 8}, Plan(8 - 2 * CORES_PER_WORKER, 1, 2)),
        (2, {"threads": 8}, Plan(8 - 2 * CORES_PER_WORKER, 2, 1)),
        (1, {"threads": 8, "front_ends": 5}, Plan(5, 1, 2)),
        (4, {"threads": 8, "gpu_workers": 32}, Plan(2, 4, 32)),
        (4, {"threads": 8, "gpu_workers": 33}, None),
    ],
)
def test_the_numbers_of_processes_follow_from_gpus_and_cores(
    gpus: int, settings: dict[str, int], plan: Plan | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "wanted_gpus", lambda _gpus: gpus)
    if plan is not None:
        assert Plan.of(Settings.model_validate(settings)) == plan
        return
    with pytest.raises(ValueError, match=r"132 workers.* at most 128 .*set fewer"):
        Plan.of(Settings.model_validate(settings))


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
