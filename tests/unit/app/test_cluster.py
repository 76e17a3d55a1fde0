"""What a front end and a worker on Ray add to the application."""

import asyncio
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from app import cluster
from app.admission import Admission, Limits
from app.cluster import FrontEnd, busy_images, reserved
from models.domain.backend import Load
from models.settings import Settings
from workers.cluster import Offer

IDLE = Load("cpu", 0, 0, 0.0, alive=True)


@dataclass
class Known:
    """What a backend knows of its replicas."""

    busy_images: int = 0
    device: str = "cpu"
    changed: bool = False

    def load(self) -> Load:
        return replace(IDLE, device=self.device)


@pytest.mark.parametrize(
    ("known", "busy"),
    [(Known(16), (16, 128)), (Known(16, "cuda:0"), (16, 0)), (Known(), (1, 8))],
)
def test_all_replicas_together_are_kept_busy(known: Known, busy: tuple[int, int]) -> None:
    found = busy_images(known, Offer((), None, 8))  # type: ignore[arg-type]  # a stand-in
    assert found == busy


async def test_more_images_pass_the_line_when_replicas_come() -> None:
    admission = Admission(Limits.from_settings(Settings()), at_once=1)
    turns, go = list[int](), asyncio.Event()

    async def pass_line(number: int) -> None:
        with admission.enter() as permit, permit.turn(100_000_000) as turn:
            await turn.take()
            turns.append(number)
            await go.wait()

    admission.line.set_images(3, 0)
    tasks = [asyncio.create_task(pass_line(n)) for n in range(4)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(turns) == 3
    go.set()
    await asyncio.gather(*tasks)


def test_a_front_end_with_other_weights_than_its_workers_is_not_healthy() -> None:
    front_end = FrontEnd.__new__(FrontEnd)
    front_end._backend = None
    asyncio.run(front_end.check_health())
    front_end._backend = Known(changed=True)  # type: ignore[assignment]  # a stand-in
    with pytest.raises(RuntimeError, match="other weights"):
        asyncio.run(front_end.check_health())


@pytest.mark.parametrize(
    ("given", "usable", "cores"), [(64.0, 2, 2), (4.0, 8, 4), (0.5, 8, 1), (0.0, 8, 1)]
)
def test_a_replica_computes_on_what_is_reserved_and_within_the_quota(
    given: float, usable: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(get_assigned_resources=lambda: {"CPU": given})
    ray = SimpleNamespace(get_runtime_context=lambda: context, get_gpu_ids=lambda: ["0"])
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(cluster, "usable_cores", lambda: usable)
    assert reserved() == (cores, 1)
