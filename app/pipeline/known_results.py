"""Results that are known by the content of their images: recent ones, and those in the making.

The same bytes with the same operation and parameters have the same result. While one is computed,
equal images wait for it; afterwards it is kept in a bounded memory. Both cost a digest of every
image, so they are off unless `limit` is positive.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from app.intake.content_digest import digest_of
from app.intake.spool import Blob
from app.intake.wanted import Describe, Parts, Wanted
from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.outcomes import AnswerOutcome
from app.pipeline.reusable import Reusable, reusable
from app.pipeline.timings import Timings
from app.telemetry.metrics import Metrics
from models.domain.errors import ServiceError
from models.domain.job import Lane

LARGEST = 4
"""A result that takes more than this part of the limit is not kept: it would displace the rest."""


@dataclass(frozen=True, slots=True)
class Key:
    """Key of a result: everything that it depends on.

    `generation` grows when other networks or another device compute. `wanted` is the operation with
    its parameters, and the output of filtered images.
    """

    generation: int
    digest: bytes
    wanted: Wanted


Work = Callable[[], Coroutine[Any, Any, AnswerOutcome]]
"""Starts to compute the result of an image."""


class Turn(Protocol):
    """A place among all clients that others can have for a while."""

    def left(self) -> AbstractAsyncContextManager[None]:
        """Let others have it while the block runs."""


class KnownResults:
    """Results by content, at most `limit` bytes of them; 0 turns all of it off.

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
        self._in_making: dict[tuple[Key, object], asyncio.Future[Reusable | None]] = {}
        self._seen: object = None
        self._generation = 0
        self.bytes = 0
        """Bytes of all results that are kept, by estimate."""

    async def key(self, content: Blob, wanted: Wanted) -> Key | None:
        """Return the key of an image's result, or None where results are not kept."""
        if not self._limit or isinstance(wanted, Describe):
            return None
        if isinstance(wanted, Parts) and isinstance(wanted.labels, ServiceError):
            return None
        digest = await digest_of(content)
        return Key(self._current(), digest, wanted)

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
        have the image's `turn` meanwhile. An image that has waited in vain, since the other one
        failed or its client left, computes its own result and waits for no other.
        """
        if (found := self.known(key, stages)) is not None:
            return found  # it came while this image waited for its turn
        self._metrics.result_cache_misses.inc()
        equal = key, lane
        if (other := self._in_making.get(equal)) is not None:
            async with turn.left():
                await asyncio.wait((other,))
            if (made := other.result()) is not None:
                self._metrics.results_shared.inc()
                stages.reused = "shared"
                return made.outcome(self._files)
        if equal in self._in_making:
            return await work()
        return await self._first(equal, work)

    async def _first(self, equal: tuple[Key, object], work: Work) -> AnswerOutcome:
        """Compute a result for which equal images may wait; they never fail with this one."""
        promise = self._in_making[equal] = asyncio.get_running_loop().create_future()
        made = None
        try:
            outcome = await work()
            made = reusable(outcome)
            if made is not None:
                self._keep(equal[0], made)
            return outcome
        finally:
            del self._in_making[equal]
            promise.set_result(made)

    def _keep(self, key: Key, made: Reusable) -> None:
        """Keep a result, and let go of those that were not used for the longest time."""
        if key.generation != self._current() or made.size > self._limit // LARGEST:
            return
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
