"""Which errors of Ray mean that a replica was lost, and which that its code failed."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from models.domain.errors import InternalError, Overloaded
from models.domain.image import Pixels
from tests.ray_cluster import import_ray
from workers.cluster.messages import Message
from workers.cluster.serve_handle import ReplicaGone, ServeWorkers


@pytest.fixture(scope="module", autouse=True)
def ray() -> None:
    """Import Ray once, without starting it."""
    import_ray()


class Handle:
    """A deployment's handle whose calls end with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.cancelled = 0
        self.compute = SimpleNamespace(remote=self._call)

    def options(self, **_options: Any) -> "Handle":
        return self

    def _call(self, _header: bytes, _contents: list[Pixels]) -> "Handle":
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        raise self.error
        yield


def call(error: Exception) -> Handle:
    """Make a call that ends with an error of Ray; it raises the one of ours."""
    handle = Handle(error)

    async def run() -> None:
        async for _message in ServeWorkers(handle).compute(b"", []):
            pass

    asyncio.run(run())
    return handle


def failed(cause: Exception | asyncio.CancelledError) -> Exception:
    """Return what Ray raises where the code of a replica raised `cause`."""
    from ray.exceptions import RayTaskError

    found: Exception = RayTaskError("compute", "Traceback", cause, "replica", 1, "127.0.0.1")
    return found


def test_a_fault_of_the_replicas_code_is_no_loss() -> None:
    with pytest.raises(InternalError):
        call(failed(ValueError("a fault")))


def test_a_fault_of_the_replicas_code_is_recognised_in_the_class_of_its_cause() -> None:
    from ray.exceptions import RayTaskError

    error = failed(ValueError("a fault"))
    assert isinstance(error, RayTaskError)
    with pytest.raises(InternalError):
        call(error.as_instanceof_cause())


def test_a_replica_that_was_cancelled_or_lost_another_is_a_loss() -> None:
    from ray.exceptions import ActorUnavailableError

    for cause in (asyncio.CancelledError(), ActorUnavailableError("gone", None)):
        with pytest.raises(ReplicaGone) as gone:
            call(failed(cause))
        assert not gone.value.died


def test_a_replica_that_died_is_a_loss_that_counts() -> None:
    from ray.exceptions import ActorDiedError

    with pytest.raises(ReplicaGone) as gone:
        call(ActorDiedError())
    assert gone.value.died


def test_a_full_queue_is_refused() -> None:
    from ray.serve.exceptions import BackPressureError

    with pytest.raises(Overloaded):
        call(BackPressureError(num_queued_requests=1, max_queued_requests=1))
