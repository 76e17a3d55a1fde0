"""What a front end on Ray adds to the application."""

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.admission import Admission
from app.admission.account import Kind
from app.admission.counters import Counters
from app.cluster.front_end import FrontEnd, WholeBodies, busy_images
from darkroom.autoscaling import by_images
from models.domain.backend import Load
from models.settings import Settings
from workers.cluster.messages import Description
from workers.cluster.replicas import Replicas

IDLE = Load("cpu", 0, 0, 0, 0.0, alive=True)


@dataclass
class Known:
    """What a backend knows of its replicas."""

    replicas: Any
    device: str = "cpu"

    def load(self) -> Load:
        return replace(IDLE, device=self.device)


async def views(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": memoryview(b"abc"), "more_body": True})
    await send({"type": "http.response.body", "body": b"d"})


def test_bodies_are_sent_as_bytes_which_ray_can_pickle() -> None:
    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    asyncio.run(WholeBodies(views)({"type": "http"}, receive, keep))
    assert [each.get("body") for each in sent] == [None, b"abc", b"d"]
    assert [type(each["body"]) for each in sent[1:]] == [bytes, bytes]


def test_all_replicas_together_are_kept_busy() -> None:
    description = Description([], None, 8)
    four = SimpleNamespace(busy_images=16)
    assert busy_images(Known(four), description) == (16, 128)  # type: ignore[arg-type]  # a stand-in
    assert busy_images(Known(four, "cuda:0"), description)[1] == 0  # type: ignore[arg-type]  # same
    assert busy_images(Known(Replicas()), description)[0] == 1  # type: ignore[arg-type]  # same


def test_more_images_pass_the_line_when_replicas_come() -> None:
    admission = Admission.from_settings(Settings(), 1, Counters(), 1)
    turns: list[str] = []

    async def pass_line(number: int) -> None:
        with admission.enter() as permit:
            async with permit.turn((Kind("k", 100.0),)):
                turns.append(f"{number}")
                await asyncio.sleep(0.05)

    async def test() -> None:
        admission.set_busy_images(3, 0)
        tasks = [asyncio.create_task(pass_line(n)) for n in range(4)]
        await asyncio.sleep(0.01)
        assert len(turns) == 3
        await asyncio.gather(*tasks)

    asyncio.run(test())
    assert admission.busy_images == 3


def test_a_front_end_with_other_weights_than_its_workers_is_not_healthy() -> None:
    front_end = FrontEnd.__new__(FrontEnd)
    front_end._backend = None
    asyncio.run(front_end.check_health())
    front_end._backend = Known(SimpleNamespace(changed=True))  # type: ignore[assignment]  # same
    with pytest.raises(RuntimeError, match="other weights"):
        asyncio.run(front_end.check_health())


@dataclass
class Context:
    """The part of Ray's context that the policy reads."""

    aggregated_metrics: dict[str, dict[str, float]]
    running_replicas: list[str] = field(default_factory=list)
    total_queued_requests: float = 0.0
    target: float = 16.0

    @property
    def config(self) -> Any:
        return SimpleNamespace(get_target_ongoing_requests=lambda: self.target)


@pytest.mark.parametrize(
    ("images", "queued", "wanted"),
    [({}, 0, 0), ({"a": 16}, 0, 1), ({"a": 40, "b": 24}, 0, 4), ({"a": 32}, 16, 3)],
)
def test_replicas_follow_the_images_that_wait(
    images: dict[str, float], queued: float, wanted: float
) -> None:
    assert by_images(Context({"images": images}, [*images], queued))[0] == wanted


def test_images_of_a_replica_that_has_gone_do_not_count() -> None:
    assert by_images(Context({"images": {"a": 16, "gone": 64}}, ["a"]))[0] == 1
