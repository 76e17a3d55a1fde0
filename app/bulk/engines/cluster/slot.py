"""One place of a cluster: its actor takes chunks, and is started again when it ends."""

import asyncio
from collections.abc import Callable
from typing import Any

from app.bulk.engines.cluster.chunks import MOST_TRIES, Chunks, Pending
from app.bulk.engines.cluster.connection import Actor, ActorLost, Cluster
from app.bulk.engines.cluster.layout import Place
from app.bulk.engines.cluster.messages import Started, decode_answers, decode_started
from app.bulk.errors import EngineLost, WrongUsage
from models.version import VERSION

Accept = Callable[[Started, Place], bool]
"""Takes what an actor has found out; returns False if it must start again with other orders."""


PAUSE = 1.0
"""Seconds before an actor is asked for again that could not be."""


class Slot:
    """Actors at one place, one after the other. `orders` gives the encoded orders of the next one.

    `is_ready` is True while an actor at `place` takes chunks.
    """

    def __init__(
        self,
        cluster: Cluster,
        place: Place,
        chunks: Chunks,
        orders: Callable[[Place], bytes],
        accept: Accept,
    ) -> None:
        self._cluster, self._chunks = cluster, chunks
        self._orders, self._accept = orders, accept
        self.place = place
        self._failed_starts = 0
        self.is_ready = False

    async def run(self) -> None:
        """Answer chunks until the node is lost. Raises EngineLost and WrongUsage."""
        while True:
            try:
                actor = await asyncio.to_thread(self._cluster.actor, self.place)
            except ActorLost as error:
                self._count_failed_start(error)
                await asyncio.sleep(PAUSE)
                continue
            try:
                if not await self._begin(actor):
                    continue
                self.is_ready, self._failed_starts = True, 0
                await _Turn(actor, self.place, self._chunks).serve()
            except ActorLost as error:
                if await self._is_gone():
                    self._chunks.gone.add(self.place.node)
                    return
                if not self.is_ready:
                    self._count_failed_start(error)
            finally:
                self.is_ready = False
                await asyncio.shield(asyncio.to_thread(actor.kill))

    async def _begin(self, actor: Actor) -> bool:
        problem, answer = await actor.begin(VERSION, self._orders(self.place))
        started = Started(problem=problem) if problem else decode_started(answer)
        if started.problem is not None:
            raise WrongUsage(f"--ray: node {self.place.name}: {started.problem}")
        return self._accept(started, self.place)

    async def _is_gone(self) -> bool:
        """Return whether the node is lost, as far as Ray knows: it may take 15 s to notice."""
        try:
            nodes = await asyncio.to_thread(self._cluster.nodes)
        except ActorLost:  # the head node does not answer
            return False
        return not any(each["Alive"] and each["NodeID"] == self.place.node for each in nodes)

    def _count_failed_start(self, error: ActorLost) -> None:
        self._failed_starts += 1
        if self._failed_starts == MOST_TRIES:
            raise EngineLost(
                f"--ray: {MOST_TRIES} actors on node {self.place.name} ended while they started: "
                f"{error}"
            )


class _Turn:
    """One actor that takes chunks until it ends."""

    def __init__(self, actor: Actor, place: Place, chunks: Chunks) -> None:
        self._actor, self._place, self._chunks = actor, place, chunks
        self._under_way: dict[asyncio.Future[tuple[str | None, bytes]], Pending] = {}

    async def serve(self) -> None:
        """Answer chunks; raises ActorLost, and EngineLost if a chunk has ended too many actors."""
        try:
            while True:
                changed: asyncio.Future[Any] = self._chunks.changed()
                self._take()
                await asyncio.wait({changed, *self._under_way}, return_when=asyncio.FIRST_COMPLETED)
                self._collect()
        except ActorLost as error:
            self._lost(error)
            raise
        finally:
            for each in self._under_way:
                each.cancel()

    def _take(self) -> None:
        while (
            chunk := self._chunks.take(self._under_way.values(), self._place.chunks)
        ) is not None:
            call = asyncio.ensure_future(self._actor.answer(chunk.message))
            self._under_way[call] = chunk

    def _collect(self) -> None:
        """Pass on what is answered; raises ActorLost, and WrongUsage for a problem of the node."""
        for call in [each for each in self._under_way if each.done()]:
            problem, answers = call.result()
            if problem is not None:
                raise WrongUsage(f"--ray: node {self._place.name}: {problem}")
            chunk = self._under_way.pop(call)
            if not chunk.answers.done():  # it is cancelled when the command ends
                chunk.answers.set_result(decode_answers(answers))

    def _lost(self, error: ActorLost) -> None:
        cause = self._chunks.give_back(self._under_way.values(), self._place.node)
        if cause is not None:
            first, last = cause.tasks[0].index, cause.tasks[-1].index
            raise EngineLost(
                f"{MOST_TRIES} actors ended while they had images {first} to {last}, the last one "
                f"on node {self._place.name}: {error}; the same command goes on there, and "
                "--exclude leaves out the image that is the cause"
            )
