"""What becomes of an image whose replica's process is killed, on a real Ray Serve."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from models.domain.job import Labels
from tests.fakes import GUARD, fake_job, first_sample
from tests.ray_cluster import deploy_held, ray_rig, running_ray
from workers import cluster

pytestmark = pytest.mark.slow


async def killed(handle: Any, folder: Path) -> None:
    """Kill the replica's process while it has a job, and await the job's answer."""
    async with asyncio.timeout(GUARD), ray_rig(handle, folder) as rig:
        rig.hold()
        job = asyncio.create_task(rig.backend.run(fake_job(7)))
        await rig.held()
        os.kill(await handle.process.remote(), signal.SIGKILL)
        rig.let_go()
        done = await job
        assert done.result == Labels((7,), (1.0,))
        assert rig.seen == [7, 7]


def test_a_job_of_a_killed_process_is_computed_by_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[bool] = []
    error_of = cluster._error_of

    def noted(error: Exception) -> Any:
        found = error_of(error)
        losses.append(getattr(found, "counts", False))
        return found

    monkeypatch.setattr(cluster, "_error_of", noted)
    with running_ray():
        asyncio.run(killed(deploy_held(tmp_path, first_sample), tmp_path))
    assert losses[0], "Ray reports the death of a process by another error"
