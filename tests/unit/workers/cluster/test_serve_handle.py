"""Which errors of Ray mean that a replica was lost, and which that its code failed."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.domain.errors import InternalError, Overloaded, ServiceError
from models.domain.image import Pixels
from tests.ray_cluster import import_ray
from workers.cluster import serve_handle
from workers.cluster.messages import Message
from workers.cluster.serve_handle import ReplicaGone, ServeWorkers


@pytest.fixture(scope="module", autouse=True)
def ray() -> None:
    """Import Ray once, without starting it."""
    import_ray()


class Handle:
    """A deployment's handle whose calls end with an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.cancelled = 0
        self.broadcast: Callable[..., Any] | None = None
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


def call(error: BaseException) -> None:
    """Make a call that ends with an error of Ray; raise the one of ours."""
    handle = Handle(error)

    async def run() -> None:
        async for _message in ServeWorkers(handle).compute(
            b"", [np.zeros(1, np.uint8)], small=True
        ):
            pass

    with pytest.raises((ReplicaGone, ServiceError)) as found:
        asyncio.run(run())
    assert handle.cancelled == 1
    raise found.value


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


def test_an_error_of_the_replicas_code_that_grpc_hands_over_is_no_loss() -> None:
    with pytest.raises(InternalError):
        call(ValueError("a fault"))


@pytest.mark.parametrize(
    ("status", "lost"),
    [("UNAVAILABLE", True), ("CANCELLED", True), ("RESOURCE_EXHAUSTED", False)],
)
def test_a_connection_that_was_cut_is_a_loss_and_a_call_that_is_too_large_is_none(
    status: str, lost: bool
) -> None:
    import grpc

    error = grpc.aio.AioRpcError(grpc.StatusCode[status], grpc.aio.Metadata(), grpc.aio.Metadata())
    with pytest.raises(ReplicaGone if lost else InternalError):
        call(error)


def test_a_call_that_the_replica_cancelled_is_a_loss() -> None:
    with pytest.raises(ReplicaGone) as gone:
        call(asyncio.CancelledError())
    assert not gone.value.died


def test_a_replica_that_was_cancelled_or_lost_another_is_a_loss() -> None:
    from ray.exceptions import ActorUnavailableError

    for cause in (asyncio.CancelledError(), ActorUnavailableError("gone", None)):
        with pytest.raises(ReplicaGone) as gone:
            call(failed(cause))
        assert not gone.value.died


def died(why: str) -> Exception:
    """Return Ray's exception for an actor that died."""
    from ray.exceptions import ActorDiedError

    generated = import_module("ray.core.generated.common_pb2")  # it has no types
    context = generated.ActorDiedErrorContext(error_message=why, actor_id=b"0" * 16, pid=7)
    found: Exception = ActorDiedError(context)
    return found


@pytest.mark.parametrize(
    ("why", "counts"),
    [
        (
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
            1,
        ),
        ("The actor died because its node has died. Node Id: 2a1a06e4", 0),
        ("The actor is dead because it was killed by `ray.kill`.", 0),
    ],
)
def test_only_a_process_that_died_counts_and_no_lost_node(why: str, counts: int) -> None:
    with pytest.raises(ReplicaGone) as gone:
        call(died(why))
    assert gone.value.died == bool(counts)


def test_a_replica_that_took_too_much_memory_counts() -> None:
    from ray.exceptions import OutOfMemoryError

    with pytest.raises(ReplicaGone) as gone:
        call(OutOfMemoryError("the node ran low on memory"))
    assert gone.value.died


class Replies:
    """A replica's result that comes, fails, or never comes."""

    def __init__(self, answer: bytes | Exception | None) -> None:
        self._answer = answer

    async def get_async(self) -> bytes:
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        assert self._answer is not None
        return self._answer


def test_a_silent_replica_takes_no_answer_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_handle, "PATIENCE", 0.05)
    answers = [b"one", None, died("its node has died"), b"two"]

    async def replicas() -> list[Replies]:
        return [Replies(each) for each in answers]

    response = SimpleNamespace(_fetch_replica_results_async=replicas)
    handle = Handle(ValueError())
    handle.broadcast = lambda *_arguments: response
    found = asyncio.run(ServeWorkers(handle).ask_all("report"))
    assert found == [b"one", None, b"two"]


def test_a_full_queue_is_refused() -> None:
    from ray.serve.exceptions import BackPressureError

    with pytest.raises(Overloaded):
        call(BackPressureError(num_queued_requests=1, max_queued_requests=1))
