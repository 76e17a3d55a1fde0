"""Reach the replicas of a Ray Serve deployment. Ray is imported when this is used, not before."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from models.domain.errors import InternalError, Overloaded
from models.domain.image import Pixels
from workers.cluster.messages import Message

log = logging.getLogger("darkroom.cluster")

PATIENCE = 5.0
"""Seconds in which all replicas must answer a message to all of them."""


PROCESS_DIED = "its worker process has died"
"""What Ray's message has where the process of an actor ended, and its node did not. The exception
has no other sign of it; a test with a real replica fails if Ray words it differently."""


class ReplicaGone(Exception):
    """The replica of a call is not there any more; `died`: its process ended by itself."""

    def __init__(self, died: bool) -> None:
        super().__init__(died)
        self.died = died


class Workers(Protocol):
    """The replicas as a backend uses them."""

    def compute(
        self, header: bytes, contents: list[Pixels]
    ) -> AsyncGenerator[Message | None, None]:
        """Yield the messages of the replica that takes a call; raise ReplicaGone or ServiceError.

        The first item says that a replica has the call: a message of it, or None. Waits while no
        replica is there or all have as many calls as they may have.
        """

    async def ask_all(self, method: str, *arguments: object) -> Sequence[bytes | None]:
        """Return the answers of all replicas to a call without images.

        It is None for a replica that does not answer in time; those that died are left out.
        """


class ServeWorkers:
    """The replicas behind a deployment's handle."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._one = handle.compute_one
        self._many = handle.options(stream=True).compute

    async def compute(
        self, header: bytes, contents: list[Pixels]
    ) -> AsyncGenerator[Message | None, None]:
        """Call a replica that Ray Serve chooses.

        A call of one job is no stream: each message of a stream costs a millisecond and more.
        A fault of the replica's own code raises InternalError: the same call would fail again.
        """
        from ray.exceptions import RayError
        from ray.serve.exceptions import BackPressureError, RayServeException

        ended = False
        response = None
        try:
            if len(contents) == 1:
                response = self._one.remote(header, contents)
                answer = await response._to_object_ref()  # after a replica has accepted it
                yield None
                yield await answer
            else:
                response = self._many.remote(header, contents)
                async for message in response:
                    yield message
            ended = True
        except BackPressureError as error:
            text = "the workers have as many images waiting as they may have; try again"
            raise Overloaded(text, 1.0) from error
        except (RayError, RayServeException) as error:
            raise loss(error) from error
        finally:
            if response is not None and not ended:
                response.cancel()

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
    """Return the error of ours for one of Ray's, and log a fault of the replica's code."""
    from ray.exceptions import ActorDiedError, OutOfMemoryError, RayError, RayTaskError

    if isinstance(error, RayTaskError) and not isinstance(
        error.cause, RayError | asyncio.CancelledError
    ):
        log.error("the code of a replica failed", exc_info=error)
        return InternalError("a worker failed while it took the image; it has been logged")
    ended = isinstance(error, ActorDiedError) and PROCESS_DIED in str(error)
    return ReplicaGone(died=ended or isinstance(error, OutOfMemoryError))
