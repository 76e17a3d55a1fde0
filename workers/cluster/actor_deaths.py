"""Ask Ray whether the process of an actor ended by itself, where only its connection was lost.

Ray's own transport tells it in its exception. Calls over gRPC end like those of a network that was
cut: an image that ends each of its replicas must not be taken for one of bad luck.
"""

import asyncio
import logging
import time
from typing import Any

log = logging.getLogger("darkroom.cluster")

PROCESS_DIED = "its worker process has died"
"""What Ray's message has where the process of an actor ended, and its node did not. Ray has no
other sign of it; a test with a real replica fails if Ray words it differently."""

KNOWN_WITHIN = 2.0
"""Seconds in which Ray is asked again. It learns at once of a process that ended, and after seconds
of a lost node, for which no image is to blame."""

INTERVAL = 0.05


class ActorDeaths:
    """Deaths of actors, each asked for once by the calls that were lost together."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[bool]] = {}

    async def by_itself(self, actor_id: str | None) -> bool:
        """Return whether the actor's process ended by itself or for want of memory.

        Return False where Ray does not say so in time.
        """
        if actor_id is None:
            return False
        if (task := self._asked.get(actor_id)) is None:
            task = self._asked[actor_id] = asyncio.create_task(_by_itself(actor_id))
            task.add_done_callback(lambda _task: self._asked.pop(actor_id))
        return await asyncio.shield(task)


async def _by_itself(actor_id: str) -> bool:
    ends = time.monotonic() + KNOWN_WITHIN
    while time.monotonic() < ends:
        cause = await asyncio.to_thread(_death_cause, actor_id)
        if cause is not None:
            of_process = PROCESS_DIED in cause.actor_died_error_context.error_message
            return of_process or cause.HasField("oom_context")
        await asyncio.sleep(INTERVAL)
    return False


def _death_cause(actor_id: str) -> Any | None:
    """Return what the head of the cluster knows of an actor's death; None while it lives."""
    import ray

    try:
        found = ray._private.state.actors(actor_id)
    except Exception:  # the head cannot be reached, perhaps only now
        log.warning("Ray did not say what became of an actor", exc_info=True)
        return None
    return found["DeathCause"] if found.get("State") == "DEAD" else None
