"""Collect the metrics for scrapers beside the event loop: one collection at a time, shared.

With many processes, or while a GPU's driver is slow, a collection takes longer than a request may
wait for the event loop.
"""

import asyncio
import time
from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from models.domain.errors import Unavailable

PAUSE = 4.0
"""Times as long as a collection took, until the next one begins: scrapers that ask all the time get
a fifth of one thread."""

LATE = 10.0
"""Seconds after which a scraper is told that the metrics are still being collected."""

OPENMETRICS = "application/openmetrics-text"

LONGEST_ACCEPT = 4096
"""Characters of an Accept header that are looked at; Prometheus sends some 300."""


class Exposition:
    """The metrics as text; `snapshot` is called on the event loop and collected in a thread.

    A collection waits for `delay` seconds, in which other processes write what they have observed.
    """

    def __init__(self, snapshot: Callable[[], Collector], delay: float = 0.0) -> None:
        self._snapshot = snapshot
        self._delay = delay
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._kept: dict[str, tuple[int, bytes]] = {}
        """The last text of each media type, with the number of its collection."""
        self._begun = 0
        self._next = 0.0
        """When the next collection may begin."""

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that an Accept header asks for, and its media type.

        Scrapers that ask during a collection share the next one. Raises Unavailable if a collection
        takes more than LATE seconds.
        """
        wanted = f"{OPENMETRICS}; version=1.0.0" if OPENMETRICS in accept[:LONGEST_ACCEPT] else ""
        encode, kind = choose_encoder(wanted)
        asked = self._begun
        try:
            async with asyncio.timeout(LATE), self._turn:
                if kind not in self._kept or self._kept[kind][0] <= asked:
                    # A collection goes on if its scraper leaves, and none may run beside it.
                    if self._running is not None:
                        await asyncio.wait([self._running])
                    self._running = asyncio.create_task(self._collect(kind, encode))
                    await asyncio.shield(self._running)
        except TimeoutError:
            text = f"the metrics were not collected within {LATE:g} s; ask again later"
            raise Unavailable(text, retry_after=LATE) from None
        return self._kept[kind][1], kind

    async def _collect(self, kind: str, encode: Callable[[Collector], bytes]) -> None:
        await asyncio.sleep(max(self._delay, self._next - time.monotonic()))
        self._begun += 1
        number, began = self._begun, time.monotonic()
        body = await asyncio.to_thread(encode, self._snapshot())
        self._kept[kind] = number, body
        self._next = time.monotonic() + PAUSE * (time.monotonic() - began)
