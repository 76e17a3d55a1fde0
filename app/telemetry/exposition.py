"""Collect the metrics for scrapers beside the event loop: one collection at a time, shared.

With many processes, or while a GPU's driver is slow, a collection takes longer than a request may
wait for the event loop.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from models.domain.errors import Unavailable

SHARE = 0.2
"""Share of one thread's time that collections take at most, beyond `BURST`."""

BURST = 1.0
"""Seconds of collecting that are done without a pause after a quiet time, so that a scraper who
asks now and then always gets values of this moment."""

LATE = 10.0
"""Seconds after which a scraper is told that the metrics are still being collected."""

VERSIONS = frozenset({"0.0.1", "0.0.4", "1.0.0"})
"""Versions of the two text formats. prometheus_client raises TypeError for one that is no number,
and repeats others in its answer, which would make the number of kept texts unbounded."""

LONGEST_ACCEPT = 4096
"""Characters of an Accept header that is looked at; Prometheus sends some 300. One of 64,000 commas
took the event loop 0.06 s."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Metrics as text, and when their collection began."""

    body: bytes
    begun: float


class Exposition:
    """The metrics as text; `snapshot` is called on the event loop and collected in a thread.

    A collection waits for `delay` seconds, in which other processes write what they have observed.
    """

    def __init__(
        self,
        snapshot: Callable[[], Collector],
        clock: Callable[[], float] = time.monotonic,
        delay: float = 0.0,
    ) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._delay = delay
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._kept: dict[str, _Text] = {}
        self._credit, self._credited = BURST, clock()

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that an Accept header asks for, and its media type.

        Scrapers that ask during a collection share the next one. Beyond SHARE they get what was
        collected last. Raises Unavailable if a collection takes more than LATE seconds.
        """
        asked = self._clock()
        encode, kind = choose_encoder(_known(accept))
        try:
            async with asyncio.timeout(LATE), self._turn:
                if not self._is_fresh(kind, asked):
                    # A collection goes on if its scraper leaves, and no other one may run beside
                    # it.
                    if self._running is not None:
                        await asyncio.wait([self._running])
                    self._running = asyncio.create_task(self._collect(kind, encode))
                    await asyncio.shield(self._running)
        except TimeoutError:
            text = f"the metrics were not collected within {LATE:g} s; ask again later"
            raise Unavailable(text, retry_after=LATE) from None
        return self._kept[kind].body, kind

    def _is_fresh(self, kind: str, asked: float) -> bool:
        """Return whether the kept text may be sent to a scraper that asked at `asked`."""
        kept, now = self._kept.get(kind), self._clock()
        self._credit = min(BURST, self._credit + (now - self._credited) * SHARE)
        self._credited = now
        return kept is not None and (kept.begun > asked or self._credit <= 0)

    async def _collect(self, kind: str, encode: Callable[[Collector], bytes]) -> None:
        begun = self._clock()
        await asyncio.sleep(self._delay)
        collecting = self._clock()
        body = await asyncio.to_thread(encode, self._snapshot())
        self._kept[kind] = _Text(body, begun)
        self._credit -= self._clock() - collecting


def _known(accept: str) -> str:
    """Return the members of an Accept header whose version is known, or that have none.

    A header that is too long counts as empty, so that its client gets plain text.
    """
    if len(accept) > LONGEST_ACCEPT:
        return ""
    return ",".join(member for member in accept.split(",") if _version(member) in VERSIONS | {""})


def _version(member: str) -> str:
    parameters = (each.strip().partition("=") for each in member.split(";")[1:])
    return next((value for name, _, value in parameters if name == "version"), "")
