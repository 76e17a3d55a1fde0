"""Parts of one decoded image: its labels and its filtered versions, each with an outcome."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from app.intake.wanted import Parts, Version
from app.pipeline.computation import Computation
from app.pipeline.context import ImageContext, alarm_of, caught
from app.pipeline.memory.held_image import HeldImage
from app.pipeline.results.outcomes import Processed, VersionAnswer
from app.pipeline.results.timings import Timings
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from workers.operations import Classify

T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, T]]
"""Starts the work on one part; called when it is the part's turn."""


class PartsOfImage:
    """The parts of one image, side by side, `at_once` of them at a time."""

    def __init__(
        self, computation: Computation, source: HeldImage, context: ImageContext, at_once: int
    ) -> None:
        self._computation = computation
        self._source = source
        self._context = context
        self._turns = asyncio.Semaphore(at_once)

    async def all_of(self, wanted: Parts) -> Processed:
        """Return the outcomes of all parts; raises the first error if no part has succeeded."""
        versions = asyncio.gather(*(self._version(each) for each in wanted.versions))
        labels, filtered = await asyncio.gather(self._labels(wanted.labels), versions)
        found = Processed(labels, tuple(filtered))
        if len(found.errors) == wanted.n_parts:
            raise found.errors[0]
        return found

    async def _labels(
        self, wanted: Classify | ServiceError | None
    ) -> Labels | Vector | ServiceError | None:
        if not isinstance(wanted, Classify):
            return wanted
        permit, stages = self._context.permit, self._context.stages
        labels = self._computation.labels
        return await self._part(partial(labels, self._source, wanted, permit, stages))

    async def _version(self, wanted: Version) -> VersionAnswer:
        permit, stages = self._context.permit, Timings()
        filtered = partial(self._computation.filtered, last=False)
        outcome = await self._part(partial(filtered, self._source, wanted, permit, stages))
        return VersionAnswer(wanted.id, outcome, stages)

    async def _part(self, work: Work[T]) -> T | ServiceError:
        context = self._context
        return await caught(context.item, alarm_of(context.permit), self._in_turn(work))

    async def _in_turn(self, work: Work[T]) -> T:
        async with self._turns:
            return await work()
