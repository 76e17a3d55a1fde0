"""Results that are known by the content of their images: recent ones, and those in the making.

The same bytes of one client, with the same operation and parameters, have the same result. While it
is computed, equal images wait for it; afterwards it is kept in a bounded memory. Both cost a digest
of every image, so they are off unless `limit` is positive.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from app.intake.spool import Blob, Digester
from app.intake.wanted import Describe, Parts, Wanted
from app.pipeline.results.encoded_files import EncodedFiles
from app.pipeline.results.outcomes import AnswerOutcome
from app.pipeline.results.reusable import Reusable, on_disk, reusable, size_of
from app.pipeline.results.timings import Timings
from app.telemetry.metrics import Metrics
from models.domain.errors import ServiceError
from models.domain.job import Lane
from models.domain.uncounted import counts

LARGEST = 4
"""A result that takes more than this part of the limit is not kept: it would displace the rest."""


@dataclass(frozen=True, slots=True)
class Key:
    """Key of a result: everything that it depends on.

    `generation` grows when other networks or another device compute. `wanted` is the operation with
    its parameters, and the output of filtered images. Each `client` has results of its own, so that
    no client learns by the time of an answer which images others have sent.
    """

    generation: int
    digest: bytes
    wanted: Wanted
    client: str


Work = Callable[[], Coroutine[Any, Any, AnswerOutcome]]
"""Starts to compute the result of an image."""


class Turn(Protocol):
    """A place among all clients."""

    async def take(self) -> None:
        """Wait for a place."""

    def leave(self) -> None:
        """Give the place to others."""


class _Making:
    """A result that equal images want. It is forgotten when none of them refers to it any more.

    `attempt` ends when the image that computes it has ended, `waiting` is the number of images that
    wait for it or for another turn, and `made` is the result for all of them.
    """

    __slots__ = ("__weakref__", "attempt", "made", "waiting")

    def __init__(self) -> None:
        self.attempt: asyncio.Future[None] | None = None
        self.made: Reusable | None = None
        self.waiting = 0


class KnownResults:
    """Results by client and content, at most `limit` bytes of them; 0 turns all of it off.

    `version` returns an object that is another one as soon as other networks, other weights or
    another device compute; then nothing older is used any more. Lives on one event loop.
    """

    def __init__(
        self, limit: int, version: Callable[[], object], files: EncodedFiles, metrics: Metrics
    ) -> None:
        self._limit = limit
        self._version = version
        self._files = files
        self._metrics = metrics
        self._kept: OrderedDict[Key, Reusable] = OrderedDict()
        self._in_making = WeakValueDictionary[tuple[Key, Lane], _Making]()
        self._digester = Digester()
        self._seen: object = None
        self._generation = 0
        self.bytes = 0
        """Bytes of all results that are kept, by estimate."""

    async def key(self, content: Blob, wanted: Wanted, client: str) -> Key | None:
        """Return the key of an image's result for a client, or None where results are not kept."""
        if not self._limit or not counts() or isinstance(wanted, Describe):
            return None
        if isinstance(wanted, Parts) and isinstance(wanted.labels, ServiceError):
            return None
        digest = await self._digester.digest_of(content)
        return Key(self._current(), digest, wanted, client)

    def known(self, key: Key, stages: Timings) -> AnswerOutcome | None:
        """Return a kept result, and count whether there was one."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        self._metrics.result_cache_hits.inc()
        stages.reused = "cached"
        return found.outcome(self._files)

    async def once(
        self, key: Key, lane: Lane, turn: Turn, stages: Timings, work: Work
    ) -> AnswerOutcome:
        """Return the result of `work`, or that of an equal image which is computed just now.

        Only images of the same `lane` wait for each other, because bulk work takes longer; others
        have the image's `turn` meanwhile. Images that have waited in vain, since the other one
        failed or its client left, take new turns: the first one computes, the rest wait for it.
        """
        if (found := self.known(key, stages)) is not None:
            return found  # it came while this image waited for its turn
        self._metrics.result_cache_misses.inc()
        making = self._in_making.get((key, lane))
        if making is None:
            making = self._in_making[key, lane] = _Making()
        while making.made is None:
            if making.attempt is None:
                return await self._compute(key, making, work)
            await self._wait(making, making.attempt, turn)
            if making.made is None and (found := self.known(key, stages)) is not None:
                return found
        self._metrics.results_shared.inc()
        stages.reused = "shared"
        return making.made.outcome(self._files)

    async def _wait(self, making: _Making, attempt: "asyncio.Future[None]", turn: Turn) -> None:
        """Wait for an attempt without a turn; take a new one if it has failed."""
        turn.leave()
        making.waiting += 1
        try:
            await asyncio.wait((attempt,))
            if making.made is None:
                await turn.take()
        finally:
            making.waiting -= 1

    async def _compute(self, key: Key, making: _Making, work: Work) -> AnswerOutcome:
        """Compute a result for which equal images may wait; they never fail with this one."""
        attempt = making.attempt = asyncio.get_running_loop().create_future()
        try:
            outcome = await work()
            making.made = await self._made(key, making, outcome)
            return outcome
        finally:
            making.attempt = None
            attempt.set_result(None)

    async def _made(self, key: Key, making: _Making, outcome: AnswerOutcome) -> Reusable | None:
        """Return the outcome for other images, and keep it; None if it is read for none of them."""
        size = size_of(outcome)
        keep = size is not None and self._keeps(key, size) and not on_disk(outcome)
        if not keep and not making.waiting:
            return None
        made = await reusable(outcome)
        if keep and made is not None and self._keeps(key, made.size):
            self._keep(key, made)
        return made

    def _keeps(self, key: Key, size: int) -> bool:
        """Return whether a result of `size` bytes is kept."""
        return key.generation == self._current() and size <= self._limit // LARGEST

    def _keep(self, key: Key, made: Reusable) -> None:
        """Keep a result, and let go of those that were not used for the longest time."""
        before = self._kept.pop(key, None)
        self._kept[key] = made
        self.bytes += made.size - (before.size if before else 0)
        while self.bytes > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.size
        self._metrics.result_cache_bytes.set(self.bytes)

    def _current(self) -> int:
        """Return the number of the version that computes; forget all results of another one."""
        version = self._version()
        if version is not self._seen:
            self._seen = version
            self._generation += 1
            self._kept.clear()
            self.bytes = 0
            self._metrics.result_cache_bytes.set(0)
        return self._generation
