"""Which errors of Ray mean that a replica was lost, and which that its code failed."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.domain.errors import InternalError, Overloaded, ServiceError
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
        self.compute = self.compute_one = SimpleNamespace(remote=self._call)

    def options(self, **_options: Any) -> "Handle":
        return self

    def _call(self, _header: bytes, _contents: list[Pixels]) -> "Handle":
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    async def _to_object_ref(self) -> None:
        raise self.error

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        raise self.error
        yield


def call(error: Exception) -> None:
    """Make calls of one job and of two that end with an error of Ray; raise the one of ours."""
    found = [_error_of(error, [np.zeros(1, np.uint8)] * jobs) for jobs in (1, 2)]
    assert str(found[0]) == str(found[1])
    raise found[0]


def _error_of(error: Exception, contents: list[Pixels]) -> Exception:
    handle = Handle(error)

    async def run() -> None:
        async for _message in ServeWorkers(handle).compute(b"", contents):
            pass

    with pytest.raises((ReplicaGone, ServiceError)) as found:
        asyncio.run(run())
    assert handle.cancelled == 1
    return found.value


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
