"""Results that are known by the content of their images: recent ones, and those in the making.

The same bytes of one client, with the same operation and parameters, have the same result. While it
is computed, equal images wait for it; afterwards it is kept in a bounded memory. Both cost a digest
of every image, so only servers with a limit for results make this cache.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from app.admission import Permit
from app.intake.spool import Blob, digest_of
from app.intake.wanted import Parts, Wanted
from app.pipeline.encoded_files import EncodedFile, EncodedFiles
from app.pipeline.outcomes import (
    AnswerOutcome,
    EncodedImage,
    Processed,
    Timings,
    VersionAnswer,
    images_of,
)
from app.telemetry.metrics import Metrics
from models.api.schemas import InfoOptions, MatchOptions
from models.domain.errors import ServiceError
from models.domain.job import Labels, Lane, Vector, counts

LARGEST = 4
"""A result that takes more than this part of the limit is not kept: it would displace the rest."""

OVERHEAD = 512
"""Estimated bytes of a result beside its content: its key, its objects, its place in the order."""

PER_LABEL = 80
"""Estimated bytes of one class id with its score."""


Key = tuple[int, bytes, Wanted, str]
"""Everything that a result depends on: the number of the version that computes, the digest of the
file, what is wanted, and the client. Each client has results of its own, so that no client learns
by the time of an answer which images other clients have sent."""

Work = Callable[[], Coroutine[Any, Any, AnswerOutcome]]
"""Starts to compute the result of an image."""


class KnownResults:
    """Results by client and content, at most `limit` bytes of them.

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
        self._kept: OrderedDict[Key, AnswerOutcome] = OrderedDict()
        self._in_making: dict[tuple[Key, Lane], asyncio.Future[AnswerOutcome | None]] = {}
        self._seen: object = None
        self._generation = 0
        self.bytes = 0
        """Bytes of all results that are kept, by estimate."""

    async def outcome(
        self, content: Blob, wanted: Wanted, permit: Permit, stages: Timings, work: Work
    ) -> AnswerOutcome:
        """Return a kept result, that of an equal image which is computed just now, or of `work`.

        Only images of the same lane wait for each other, because bulk work takes longer. Of the
        images that have waited in vain, since the image before them failed or its client left, the
        first computes and the rest wait for it.
        """
        lacks_labels = isinstance(wanted, Parts) and isinstance(wanted.labels, ServiceError)
        if lacks_labels or isinstance(wanted, InfoOptions | MatchOptions) or not counts():
            return await work()
        digest = await digest_of(content)
        key, lane = (self._current(), digest, wanted, permit.client), permit.lane
        while True:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                self._metrics.result_cache_hits.inc()
                stages.reused = "cached"
                return self._again(kept)
            if (making := self._in_making.get((key, lane))) is None:
                break
            await asyncio.wait((making,))
            if (made := making.result()) is not None:
                self._metrics.results_shared.inc()
                stages.reused = "shared"
                return self._again(made)
        self._metrics.result_cache_misses.inc()
        making = self._in_making[key, lane] = asyncio.get_running_loop().create_future()
        made = None
        try:
            outcome = await work()
            made = reusable(outcome)
            if made is not None:
                self._keep(key, made)
            return outcome
        finally:
            del self._in_making[key, lane]
            making.set_result(made)

    def _again(self, made: AnswerOutcome) -> AnswerOutcome:
        """Return a result with files of another answer, whose bytes are not copied."""
        return with_files(made, lambda file: self._files.shared(file.read()))

    def _keep(self, key: Key, made: AnswerOutcome) -> None:
        """Keep a result, and let go of those that were not used for the longest time."""
        size = size_of(made)
        if key[0] != self._current() or size > self._limit // LARGEST or key in self._kept:
            return
        self._kept[key] = made
        self.bytes += size
        while self.bytes > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= size_of(oldest)
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


def reusable(outcome: AnswerOutcome) -> AnswerOutcome | None:
    """Return an outcome whose files hold their bytes for themselves; None if a part of it is an
    error, or a file is on disk, because memory for answers is short.
    """
    if isinstance(outcome, Processed) and outcome.errors:
        return None
    if any(not image.file.in_memory for _, image in images_of(outcome)):
        return None
    return with_files(outcome, lambda file: EncodedFile(file.read()))


def with_files(outcome: AnswerOutcome, make: Callable[[EncodedFile], EncodedFile]) -> AnswerOutcome:
    """Return an outcome with what `make` makes of each of its files."""
    if isinstance(outcome, EncodedImage):
        return replace(outcome, file=make(outcome.file))
    if not isinstance(outcome, Processed):
        return outcome
    versions = []
    for each in outcome.versions:
        assert isinstance(each.outcome, EncodedImage)
        image = replace(each.outcome, file=make(each.outcome.file))
        versions.append(VersionAnswer(each.id, image, Timings()))
    return Processed(outcome.labels, tuple(versions))


def size_of(outcome: AnswerOutcome) -> int:
    """Return the bytes of an outcome without errors, by estimate."""
    labels = outcome.labels if isinstance(outcome, Processed) else outcome
    size = OVERHEAD + sum(OVERHEAD + image.file.size for _, image in images_of(outcome))
    if isinstance(labels, Vector):
        size += int(labels.values.nbytes)
    elif isinstance(labels, Labels):
        size += PER_LABEL * len(labels.class_ids)
    return size
