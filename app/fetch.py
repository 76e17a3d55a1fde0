"""Image URLs to bytes: bounded in time, size, redirects and concurrency, and to public addresses.

Knows neither images nor requests. Credentials, cookies and proxies of the environment are not used.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

import httpcore
import httpx

from app.addresses import literal
from app.pinned import PinnedBackend, Resolve, system_resolve
from app.spool import Blob, Spool
from models.deadline import Deadline
from models.errors import (
    AddressRefused,
    DeadlineExceeded,
    FieldError,
    InvalidParameter,
    OriginFailed,
    OriginTimedOut,
    ServiceError,
    TooLarge,
)
from models.settings import Network, Settings

MAX_URL = 8192
RETRIED = frozenset((429, 502, 503, 504))
REDIRECTS = frozenset((301, 302, 303, 307, 308))

_HEADERS = {
    "User-Agent": f"darkroom/{version('darkroom')}",
    "Accept": "image/*",
    "Accept-Encoding": "identity",
}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch and of all; seconds and bytes."""

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

    @classmethod
    def from_settings(cls, settings: Settings) -> "FetchLimits":
        """The limits an operator chose."""
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
        )


class _Again(Exception):
    """A failure worth another try, after `pause` seconds if the origin named them."""

    def __init__(self, error: ServiceError, pause: float | None = None) -> None:
        self.error = error
        self.pause = pause


class Fetcher:
    """Fetches for all requests of one event loop; `observe` sees each outcome and its seconds."""

    def __init__(
        self,
        limits: FetchLimits,
        resolve: Resolve = system_resolve,
        observe: Callable[[str, float], None] = lambda outcome, seconds: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limits = limits
        self._observe = observe
        self._sleep = sleep
        self._places = asyncio.Semaphore(limits.concurrency)
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()
        self._client = _client(limits, resolve)

    async def fetch(self, url: str, deadline: Deadline) -> Blob:
        """The body behind `url`, before `deadline`; raises ServiceError."""
        start = time.monotonic()
        outcome = "ok"
        try:
            until = min(deadline.at, start + self._limits.total_timeout)
            async with asyncio.timeout_at(until):
                return await self._persistently(_checked(url))
        except TimeoutError:
            outcome = "timed_out"
            if deadline.expired(time.monotonic()):
                raise DeadlineExceeded("the deadline passed while the URL was fetched") from None
            seconds = f"{self._limits.total_timeout:g}"
            raise OriginTimedOut(f"the URL took more than {seconds} seconds") from None
        except ServiceError as error:
            outcome = error.code
            raise
        finally:
            self._observe(outcome, time.monotonic() - start)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def _persistently(self, url: httpx.URL) -> Blob:
        for attempt in range(self._limits.retries + 1):
            try:
                return await self._follow(url)
            except _Again as failure:
                if attempt == self._limits.retries:
                    raise failure.error from None
                jitter = random.uniform(0.5, 1.0)
                await self._sleep(failure.pause or 0.2 * 2**attempt * jitter)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _follow(self, url: httpx.URL) -> Blob:
        for _ in range(self._limits.max_redirects + 1):
            async with self._place(url.host):
                found = await self._once(url)
            if isinstance(found, Blob):
                return found
            url = found
        raise OriginFailed(f"more than {self._limits.max_redirects} redirects")

    async def _once(self, url: httpx.URL) -> Blob | httpx.URL:
        """The body, or where a redirect leads; every hop passes the same gate."""
        try:
            async with self._client.stream("GET", url) as reply:
                if reply.status_code in REDIRECTS and "location" in reply.headers:
                    return _checked(str(url.join(reply.headers["location"])))
                return await self._body(reply)
        except httpx.TimeoutException:
            raise _Again(OriginTimedOut(f"{url.host} did not answer in time")) from None
        except httpx.InvalidURL:
            raise OriginFailed(f"{url.host} redirects to something that is no URL") from None
        except httpx.HTTPError:
            raise _Again(OriginFailed(f"the connection to {url.host} failed")) from None
        finally:
            self._client.cookies.clear()

    async def _body(self, reply: httpx.Response) -> Blob:
        host = reply.url.host
        if reply.status_code != httpx.codes.OK:
            error = OriginFailed(f"{host} answered {reply.status_code}")
            if reply.status_code in RETRIED:
                raise _Again(error, _retry_after(reply))
            raise error
        if reply.headers.get("content-encoding", "identity").lower() != "identity":
            raise OriginFailed(f"{host} sent a compressed body although none was asked for")
        declared = reply.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._limits.max_bytes:
            raise TooLarge(f"{declared} bytes; the limit for one image is {self._limits.max_bytes}")
        async with Spool(self._limits.max_bytes, self._limits.spool_bytes) as spool:
            async for chunk in reply.aiter_raw():
                await spool.write(chunk)
            return await spool.finish()

    @asynccontextmanager
    async def _place(self, host: str) -> AsyncIterator[None]:
        """A place for one hop; a host's semaphore lives as long as somebody uses it."""
        semaphore = self._hosts.setdefault(host, asyncio.Semaphore(self._limits.per_host))
        self._waiting[host] += 1
        try:
            async with semaphore, self._places:
                yield
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host], self._hosts[host]


def _client(limits: FetchLimits, resolve: Resolve) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(trust_env=False)
    transport._pool = httpcore.AsyncConnectionPool(  # httpx has no public way to a network backend
        ssl_context=httpx.create_ssl_context(trust_env=False),
        max_connections=limits.concurrency,
        max_keepalive_connections=limits.concurrency,
        keepalive_expiry=5.0,
        network_backend=PinnedBackend(limits.allowed_networks, resolve),
    )
    timeout = httpx.Timeout(limits.read_timeout, connect=limits.connect_timeout, pool=None)
    return httpx.AsyncClient(
        transport=transport, timeout=timeout, headers=_HEADERS, trust_env=False
    )


def _checked(text: str) -> httpx.URL:
    """A URL we may try; its host is judged again, with its addresses, when it is connected to."""
    wrong = None
    url = None
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        wrong = "not a URL"
    if len(text) > MAX_URL:
        wrong = f"longer than {MAX_URL} characters"
    elif url is not None and url.scheme not in ("http", "https"):
        wrong = "only http and https are fetched"
    elif url is not None and not url.host:
        wrong = "no host"
    if wrong or url is None:
        raise InvalidParameter(f"url: {wrong}", [FieldError("url", str(wrong), text[:200])])
    if url.userinfo:
        raise AddressRefused("URLs with a user name or password are not fetched")
    if url.port == 0:
        raise AddressRefused("port 0 is not fetched from")
    literal(url.host)
    return url.copy_with(fragment=None)


def _retry_after(reply: httpx.Response) -> float | None:
    """Seconds of the Retry-After header; dates are rare and not worth a clock."""
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
