"""What a replica of a worker computes with: what Ray reserved, within what the container allows."""

import sys
from types import SimpleNamespace

import pytest

from app.cluster import worker_replica


@pytest.mark.parametrize(
    ("given", "usable", "cores"), [(64.0, 2, 2), (4.0, 8, 4), (0.5, 8, 1), (0.0, 8, 1)]
)
def test_a_replica_computes_on_what_is_reserved_and_within_the_quota(
    given: float, usable: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(get_assigned_resources=lambda: {"CPU": given})
    ray = SimpleNamespace(get_runtime_context=lambda: context, get_gpu_ids=lambda: ["0"])
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(worker_replica, "usable_cores", lambda: usable)
    assert worker_replica.reserved() == (cores, 1)
