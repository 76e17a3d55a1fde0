"""Fetch the bytes of image URLs from public addresses, within bounds of time, size, redirects and
concurrency; `stored.py` fetches those of folders and buckets.

Credentials, cookies and proxies of the environment are not used.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import httpcore
import httpx

from app.admission.clients import LOCAL
from app.admission.counters import Counters
from app.fetch.keyed_limiter import KeyedLimiter
from app.fetch.name_cache import CachingResolver
from app.fetch.origin import Again, Origins
from app.fetch.pinned_network import PinnedBackend, Resolve, asking, pinned_transport
from app.fetch.system_resolver import SystemResolver
from app.fetch.url_rules import UrlRules
from app.intake.spool import Blob, Spool
from app.urls.url_policy import host_of, is_stored, parse_url
from models.domain.deadline import Deadline
from models.domain.errors import (
    AddressRefused,
    DeadlineExceeded,
    NotFound,
    OriginFailed,
    OriginTimedOut,
    ServiceError,
    TimedOut,
    TooLarge,
)
from models.settings import Network, Settings

if TYPE_CHECKING:  # only servers with storage load it
    from app.fetch.stored import StoredImages
    from app.storage.storage import Storage

_BACKOFF = 0.2  # seconds before the second try; doubled with every further one


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch and of all; in seconds and bytes."""

    max_bytes: int
    spool_bytes: int
    connect_timeout: float
    read_timeout: float
    total_timeout: float
    concurrency: int
    per_host: int
    retries: int
    max_redirects: int
    allowed_networks: tuple[Network, ...]
    urls: UrlRules
    names_kept: float

    @classmethod
    def from_settings(cls, settings: Settings) -> "FetchLimits":
        """Return the limits that the operator chose."""
        return cls(
            max_bytes=settings.max_image_bytes,
            spool_bytes=settings.spool_bytes,
            connect_timeout=settings.fetch_connect_timeout,
            read_timeout=settings.fetch_read_timeout,
            total_timeout=settings.fetch_total_timeout,
            concurrency=settings.fetch_concurrency,
            per_host=settings.fetch_per_host,
            retries=settings.fetch_retries,
            max_redirects=settings.fetch_max_redirects,
            allowed_networks=settings.fetch_allowed_networks,
            urls=UrlRules.from_settings(settings),
            names_kept=settings.fetch_dns_cache,
        )


@dataclass(slots=True)
class _Allowance:
    """Seconds that one URL may still take; waiting for a turn does not count, as the origin has no
    part in it.
    """

    total: float
    left: float

    @asynccontextmanager
    async def spend(self) -> AsyncIterator[None]:
        clock = asyncio.get_running_loop().time
        start = clock()
        try:
            async with asyncio.timeout(self.left):
                yield
        except TimeoutError:
            raise OriginTimedOut(f"the URL took more than {self.total:g} seconds") from None
        finally:
            self.left -= clock() - start


class Fetcher:
    """Fetcher for all requests of one event loop, by whose clock it measures.

    `observe` receives the outcome of each finished fetch (ok, refused, origin_failed, timed_out,
    too_large) and its seconds; a cancelled one has none. `resolve`, `network`, `sleep` and `chance`
    replace names, connections, the wait between tries and its jitter in tests. Front ends with the
    same `counters` share the limits on concurrency. `stored` fetches storage addresses; without it
    they are refused.
    """

    def __init__(
        self,
        limits: FetchLimits,
        observe: Callable[[str, float], None] = lambda _outcome, _seconds: None,
        resolve: Resolve | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        counters: Counters | None = None,
        stored: "StoredImages | None" = None,
    ) -> None:
        self._limits = limits
        self.stored = stored
        self._observe = observe
        self._sleep = sleep
        self._chance = chance
        self._turns = KeyedLimiter(limits.concurrency, limits.per_host, counters)
        names = CachingResolver(resolve or SystemResolver(), limits.names_kept)
        backend = PinnedBackend(limits.allowed_networks, names, network)
        self._origins = Origins(
            pinned_transport(backend, limits.concurrency),
            httpx.Timeout(limits.read_timeout, connect=limits.connect_timeout, pool=None),
            lambda: Spool(limits.max_bytes, limits.spool_bytes),
        )

    @classmethod
    def from_settings(
        cls, settings: Settings, observe: Callable[[str, float], None], counters: Counters
    ) -> "Fetcher":
        """Return a fetcher with the operator's limits; ValueError says which setting is wrong."""
        stored = None
        if settings.storage_allow or settings.storage_allow_write or settings.data_folder:
            from app.fetch.stored import StoredImages

            stored = StoredImages.from_settings(settings)
        limits = FetchLimits.from_settings(settings)
        return cls(limits, observe, counters=counters, stored=stored)

    @property
    def storage(self) -> "Storage":
        """Return the folders and buckets that this fetcher reads from."""
        assert self.stored is not None
        return self.stored.storage

    async def fetch(self, url: str, deadline: Deadline, client: str = "") -> Blob:
        """Return the body of `url`, before `deadline`; the caller closes it.

        `client` is the one whose shares of fetches and of lookups of names it takes; LOCAL has all
        fetches. Raises InvalidParameter, AddressRefused, NotFound (of storage), OriginFailed,
        OriginTimedOut, TooLarge and DeadlineExceeded.
        """
        clock = asyncio.get_running_loop().time
        start = clock()
        token = asking.set("" if client == LOCAL else client)
        try:
            blob = await self._in_time(url, deadline)
        except ServiceError as error:
            self._observe(_outcome(error), clock() - start)
            raise
        finally:
            asking.reset(token)
        self._observe("ok", clock() - start)
        return blob

    def concurrency(self) -> int:
        """Return how many URLs may be fetched at a time."""
        return self._turns.total

    def set_concurrency(self, total: int, per_host: int) -> None:
        """Change the limits from now on; fetches in progress continue."""
        self._turns.set_limits(total, per_host)
        if self.stored is not None:
            self.stored.set_concurrency(total)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._origins.aclose()
        if self.stored is not None:
            self.stored.close()

    async def _in_time(self, url: str, deadline: Deadline) -> Blob:
        try:
            async with asyncio.timeout_at(deadline.alarm):
                if is_stored(url):
                    if self.stored is None:
                        raise AddressRefused(
                            "this storage address is not allowed here; the operator allows "
                            "prefixes with DARKROOM_STORAGE_ALLOW"
                        )
                    return await self.stored.fetch(url, asking.get())
                return await self._persistently(parse_url(url), deadline)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed while the URL was fetched") from None

    async def _persistently(self, url: httpx.URL, deadline: Deadline) -> Blob:
        """Retry failures that may pass, unless the pause is longer than the remaining time."""
        allowance = _Allowance(self._limits.total_timeout, self._limits.total_timeout)
        clock = asyncio.get_running_loop().time
        for attempt in count():
            try:
                return await self._follow(url, allowance)
            except Again as failure:
                pause = failure.pause or _BACKOFF * 2**attempt * (0.5 + self._chance() / 2)
                left = min(allowance.left, deadline.remaining(clock()))
                if attempt == self._limits.retries or pause >= left:
                    raise failure.error from None
            allowance.left -= pause
            await self._sleep(pause)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _follow(self, url: httpx.URL, allowance: _Allowance) -> Blob:
        for _ in range(self._limits.max_redirects + 1):
            self._limits.urls.check(url)
            turn = self._turns.take(host_of(url).rstrip("."), asking.get())
            async with turn, allowance.spend():
                found = await self._origins.ask(url)
            if isinstance(found, Blob):
                return found
            url = found
        raise OriginFailed(f"more than {self._limits.max_redirects} redirects")


def _outcome(error: ServiceError) -> str:
    match error:
        case OriginFailed() | NotFound():
            return "origin_failed"
        case TimedOut():
            return "timed_out"
        case TooLarge():
            return "too_large"
    return "refused"
