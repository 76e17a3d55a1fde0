"""The CPUs of each process, on machines whose GPUs and CPUs are made up."""

import pytest

from workers.supervision import binding
from workers.supervision.binding import Placement

NODES = [frozenset(range(8)), frozenset(range(8, 16))]


def placed(
    patch: pytest.MonkeyPatch,
    gpus: list[int | None],
    near: list[frozenset[int]],
    *,
    bind: bool = True,
) -> Placement:
    """Return the placement on 16 CPUs, of which those in `near` are near each GPU."""
    patch.setattr(binding, "usable_cpus", lambda: frozenset(range(16)))
    patch.setattr(binding, "cores_of", lambda cpus: [frozenset({cpu}) for cpu in sorted(cpus)])
    patch.setattr(binding, "bus_id", str)
    patch.setattr(binding, "near_cpus", lambda bus: near[int(bus)])
    return Placement(gpus, 2, bind=bind)


def test_two_gpus_of_two_nodes_keep_to_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = placed(monkeypatch, [0, 1, 0, 1], NODES)
    assert [found.worker(gpu) for gpu in (0, 1)] == [[*range(8)], [*range(8, 16)]]
    assert found.front_end(2) == {"cpus": [*range(8)], "near": [0, 2]}
    assert found.front_end(3) == {"cpus": [*range(8, 16)], "near": [1, 3]}


def test_two_gpus_of_unknown_nodes_share_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = placed(monkeypatch, [0, 1], [frozenset(), frozenset()])
    assert [found.worker(gpu) for gpu in (0, 1)] == [[*range(8)], [*range(8, 16)]]


def test_one_gpu_has_its_workers_near_and_front_ends_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = placed(monkeypatch, [0, 0], NODES[1:])
    assert found.worker(0) == [*range(8, 16)]
    assert found.front_end(0) == {"cpus": (), "near": ()}


def test_workers_without_enough_near_cpus_have_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    found = placed(monkeypatch, [0, 0], [frozenset({1, 2, 3})])
    assert found.worker(0) == ()


def test_nothing_is_bound_where_the_setting_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = placed(monkeypatch, [0, 1], NODES, bind=False)
    assert found.worker(1) == ()
    assert found.front_end(1) == {"cpus": (), "near": [1]}


def test_nothing_is_bound_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = placed(monkeypatch, [None], NODES)
    assert found.worker(None) == ()
    assert found.front_end(1) == {"cpus": (), "near": ()}
