"""Reach the replicas of a Ray Serve deployment. Ray is imported when this is used, not before."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from models.domain.errors import InternalError, Overloaded, ServiceError
from models.domain.image import Pixels
from workers.cluster.actor_deaths import PROCESS_DIED, ActorDeaths
from workers.cluster.messages import Message

log = logging.getLogger("darkroom.cluster")

PATIENCE = 5.0
"""Seconds in which all replicas must answer a message to all of them."""

_GRPC = {
    "_by_reference": False,
    "request_serialization": "pickle",
    "response_serialization": "pickle",
}
"""Options of a handle whose calls go over gRPC. Ray Serve's default, cloudpickle, is slower."""

_FINAL = ("RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNIMPLEMENTED")
"""Statuses of gRPC with which the same call would end again: too large, no token, another Ray."""


class ReplicaGone(Exception):
    """The replica of a call is not there any more; `died`: its process ended by itself."""

    def __init__(self, died: bool) -> None:
        super().__init__(died)
        self.died = died


class Workers(Protocol):
    """The replicas as a backend uses them."""

    def compute(
        self, header: bytes, contents: list[Pixels], *, small: bool
    ) -> AsyncGenerator[Message, None]:
        """Yield the messages of the replica that takes a call; raise ReplicaGone or ServiceError.

        The first one says that a replica has the call. Waits while no replica is there or all have
        as many calls as they may have. `small`: the call and its messages have few bytes.
        """

    async def ask_all(self, method: str, *arguments: object) -> Sequence[bytes | None]:
        """Return the answers of all replicas to a call without images.

        It is None for a replica that does not answer in time; those that died are left out.
        """


class ServeWorkers:
    """The replicas behind a deployment's handle."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._by_ray = handle.options(stream=True).compute
        self._by_grpc = handle.options(stream=True, **_GRPC).compute
        self._deaths = ActorDeaths()

    async def compute(
        self, header: bytes, contents: list[Pixels], *, small: bool
    ) -> AsyncGenerator[Message, None]:
        """Call a replica that Ray Serve chooses.

        A `small` call goes over the gRPC of Ray Serve: there a message costs a fraction of the
        millisecond that Ray's own transport takes, but it is copied, and 4 MiB are the limit. A
        fault of the replica's own code raises InternalError: the same call would fail again.
        """
        ended = False
        response = (self._by_grpc if small else self._by_ray).remote(header, contents)
        try:
            async for message in response:
                yield message
            ended = True
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise ReplicaGone(died=False) from None  # the replica's, which gRPC hands over
        except Exception as error:  # gRPC also raises what the replica's code raised
            raise await self._error(error) from error
        finally:
            if not ended:
                response.cancel()

    async def _error(self, error: Exception) -> ReplicaGone | ServiceError:
        """Return the error of ours for one of Ray's, and log a fault of the replica's code."""
        from ray.exceptions import ActorUnavailableError
        from ray.serve.exceptions import BackPressureError

        if isinstance(error, BackPressureError):
            text = "the workers have as many images waiting as they may have; try again"
            return Overloaded(text, 1.0)
        if isinstance(error, ActorUnavailableError):
            return ReplicaGone(await self._deaths.by_itself(error.actor_id))
        return loss(error)

    async def ask_all(self, method: str, *arguments: object) -> Sequence[bytes | None]:
        """Call a method of all replicas."""
        from ray.exceptions import ActorDiedError

        response = self._handle.broadcast(method, *arguments)
        async with asyncio.timeout(PATIENCE):
            # The public `results_async` gives no answer at all if one replica has none in time.
            found = await response._fetch_replica_results_async()
        asked = [asyncio.ensure_future(each.get_async()) for each in found]
        if not asked:
            return []
        _, late = await asyncio.wait(asked, timeout=PATIENCE)
        for each in late:
            each.cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        there = [each for each in answers if not isinstance(each, ActorDiedError)]
        return [each if isinstance(each, bytes) else None for each in there]

    async def describe(self) -> bytes:
        """Return the description of any replica, waiting for one."""
        answer: bytes = await self._handle.describe.remote()
        return answer


def loss(error: Exception) -> ReplicaGone | InternalError:
    """Return the error of ours for one of Ray or gRPC, and log a fault of the replica's code."""
    from grpc.aio import AioRpcError
    from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError, RayTaskError
    from ray.serve.exceptions import RayServeException

    if isinstance(error, AioRpcError):
        is_lost = error.code().name not in _FINAL
    elif isinstance(error, RayTaskError):
        is_lost = isinstance(error.cause, RayError | asyncio.CancelledError)
    else:
        is_lost = isinstance(error, RayError | RayServeException)
    if not is_lost:
        log.error("the code of a replica failed", exc_info=error)
        return InternalError("a worker failed while it took the image; it has been logged")
    ended = isinstance(error, ActorDiedError) and PROCESS_DIED in str(error)
    return ReplicaGone(died=ended or isinstance(error, OutOfMemoryError))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
