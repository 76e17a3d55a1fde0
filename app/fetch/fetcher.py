"""Fetch images by URLs from public addresses, and images of folders and buckets, within
bounds of time, size, redirects and concurrency.

The transport is used without httpx's client, so nothing keeps cookies, reads credentials or proxies
of the environment, follows redirects or logs URLs.
"""

import asyncio
import ssl
from asyncio import sleep
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import random
from typing import TYPE_CHECKING

import httpcore
import httpx

from app.admission.clients import LOCAL
from app.admission.counters import Counters
from app.admission.semaphore import FairSemaphore
from app.fetch.pinned_network import PinnedTransport, Resolve, asking
from app.intake.body import CODINGS, BadCoding, inflated
from app.intake.spool import Blob, too_large, whole
from app.urls import MAX_URL, host_of, is_stored, parse_url
from models.domain.deadline import Deadline
from models.domain.errors import (
    AddressRefused,
    DeadlineExceeded,
    InvalidParameter,
    NotFound,
    OriginBusy,
    OriginFailed,
    OriginTimedOut,
    ServiceError,
    TimedOut,
    TooLarge,
)
from models.setting_types import port_ranges
from models.settings import Network, Settings
from models.version import VERSION

if TYPE_CHECKING:  # only servers with storage load it
    from app.storage.storage import Storage

RETRIED = frozenset((429, 502, 503, 504))
REDIRECTS = frozenset((301, 302, 303, 307, 308))

PACKED = frozenset(
    (*CODINGS, "br", "zstd", "compress", "x-compress", "dcb", "dcz", "bzip2", "lzma", "xz")
)
"""Names of compressions, of which CODINGS are undone."""

MOST_PIECES, SMALLEST_PIECE = 4096, 128
"""Pieces of any size that a body may come in, and bytes that further ones have on average: parsing
a chunk of one byte takes the event loop as long as parsing a chunk of 64 KiB."""

_BACKOFF = 0.2  # seconds before the second try; doubled with every further one
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HEADERS = {
    "User-Agent": f"darkroom/{VERSION}",
    "Accept": "image/*",
    "Accept-Encoding": "identity",
}


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch and of all; in seconds and bytes.

    Allowed `ports` stand as the setting writes them. No `hosts` means all of them, and
    `*.example.org` allows every name below example.org, but not example.org. A connection has three
    seconds, so that TCP sends a lost first packet again after one. Two retries and five redirects
    bound the requests that one URL can cause.
    """

    max_bytes: int
    total_timeout: float
    concurrency: int
    per_host: int
    allowed_networks: tuple[Network, ...]
    ports: str
    hosts: tuple[str, ...]
    connect_timeout: float = 3.0
    read_timeout: float = 10.0
    retries: int = 2
    max_redirects: int = 5

    @classmethod
    def from_settings(cls, settings: Settings) -> "FetchLimits":
        """Return the limits that the operator chose."""
        return cls(
            max_bytes=settings.max_image_bytes,
            total_timeout=settings.fetch_total_timeout,
            concurrency=settings.fetch_concurrency,
            per_host=per_host(settings.fetch_concurrency),
            allowed_networks=settings.fetch_allowed_networks,
            ports=settings.fetch_ports,
            hosts=settings.fetch_allowed_hosts,
        )

    @property
    def timeouts(self) -> dict[str, float | None]:
        """Return the seconds to connect, and between two pieces, as httpx's extension has them."""
        return httpx.Timeout(self.read_timeout, connect=self.connect_timeout, pool=None).as_dict()

    def check(self, url: httpx.URL) -> None:
        """Raise AddressRefused for a URL of http or https that the operator does not allow."""
        port = url.port or _DEFAULT_PORTS[url.scheme]
        if not any(port in ports for ports in port_ranges(self.ports)):
            raise AddressRefused(
                f"port {port} is not fetched from; allowed: {self.ports} (DARKROOM_FETCH_PORTS)"
            )
        host = host_of(url).lower().rstrip(".")
        if self.hosts and not any(_matches(host, each) for each in self.hosts):
            raise AddressRefused(
                f"{host} is not a host that images are fetched from; the operator chooses them "
                "with DARKROOM_FETCH_ALLOWED_HOSTS"
            )


def per_host(concurrency: int) -> int:
    """Return how many URLs of a host are fetched at a time: an eighth of all, at least 8."""
    return max(8, concurrency // 8)


def _matches(host: str, allowed: str) -> bool:
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed


@dataclass(frozen=True, slots=True)
class _Again:
    """A failure worth another try, after `pause` seconds if the origin named them."""

    error: ServiceError
    pause: float | None = None


class Fetcher:
    """Fetcher for all requests of one event loop, by whose clock it measures.

    `observe` receives the outcome of each finished fetch (ok, refused, origin_failed, timed_out,
    too_large) and its seconds; a cancelled fetch has no outcome. `resolve` and `network` replace
    names and connections in tests. Front ends with the same `counters` share the limits on
    concurrency. Without `storage`, storage addresses are refused; `aclose` closes it.
    """

    def __init__(
        self,
        limits: FetchLimits,
        observe: Callable[[str, float], None] = lambda _outcome, _seconds: None,
        resolve: Resolve | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        counters: Counters | None = None,
        storage: "Storage | None" = None,
    ) -> None:
        self._limits = limits
        self._storage = storage
        self._observe = observe
        self.turns = FairSemaphore(limits.concurrency, counters, per_key=limits.per_host)
        self._stored_turns = FairSemaphore(limits.concurrency)
        networks = limits.allowed_networks
        self._transport = PinnedTransport(networks, limits.concurrency, resolve, network)
        self._extensions = {"timeout": limits.timeouts}

    @classmethod
    def from_settings(
        cls, settings: Settings, observe: Callable[[str, float], None], counters: Counters
    ) -> "Fetcher":
        """Return a fetcher with the operator's limits; ValueError says which setting is wrong."""
        storage = None
        if settings.storage_allow or settings.storage_allow_write or settings.data_folder:
            from app.storage.storage import Storage

            storage = Storage.from_settings(settings)
        limits = FetchLimits.from_settings(settings)
        return cls(limits, observe, counters=counters, storage=storage)

    @property
    def storage(self) -> "Storage":
        """Return the folders and buckets that this fetcher reads from."""
        assert self._storage is not None
        return self._storage

    async def fetch(self, url: str, deadline: Deadline, client: str = "") -> Blob:
        """Return the body of `url`, before `deadline`; the caller closes it.

        `client` gives its shares of fetches and of lookups of names; LOCAL has all
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

    def set_concurrency(self, total: int) -> None:
        """Change the limits from now on; fetches in progress continue."""
        self.turns.set_total(total, per_host(total))
        self._stored_turns.set_total(total)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()
        if self._storage is not None:
            self._storage.close()

    async def _in_time(self, url: str, deadline: Deadline) -> Blob:
        try:
            async with asyncio.timeout_at(deadline.alarm):
                if not is_stored(url):
                    return await self._followed(parse_url(url), deadline)
                if self._storage is None:
                    raise AddressRefused(
                        "this storage address is not allowed here; the operator allows prefixes "
                        "with DARKROOM_STORAGE_ALLOW"
                    )
                return await self._stored(url, self._storage)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed while the URL was fetched") from None

    async def _stored(self, address: str, storage: "Storage") -> Blob:
        """Return an image of a folder or bucket."""
        location = storage.readable(address)
        turn = self._stored_turns.hold(asking.get())
        pieces = storage.pieces(location, self._limits.max_bytes)
        async with turn, aclosing(pieces):
            return await whole(pieces, self._limits.max_bytes)

    async def _followed(self, first: httpx.URL, deadline: Deadline) -> Blob:
        """Follow redirects, and retry failures that may pass, unless the pause is too long.

        Waiting for a turn does not count in the time of the URL: the origin has no part in it.
        """
        limits, clock = self._limits, asyncio.get_running_loop().time
        left, tries, hops, url = limits.total_timeout, 0, 0, first
        while True:
            limits.check(url)
            async with self.turns.hold(asking.get(), host_of(url).rstrip(".")):
                start = clock()
                try:
                    async with asyncio.timeout(left):
                        found = await self._asked(url)
                except TimeoutError:
                    text = f"the URL took more than {limits.total_timeout:g} seconds"
                    raise OriginTimedOut(text) from None
                left -= clock() - start
            if isinstance(found, Blob):
                return found
            if isinstance(found, httpx.URL):
                hops, url = hops + 1, found
                if hops > limits.max_redirects:
                    raise OriginFailed(f"more than {limits.max_redirects} redirects")
                continue
            jitter = 0.5 + random() / 2  # noqa: S311 - no secret
            pause = found.pause or _BACKOFF * 2**tries * jitter
            if tries == limits.retries or pause >= min(left, deadline.remaining(clock())):
                raise found.error
            tries, hops, url, left = tries + 1, 0, first, left - pause
            await sleep(pause)

    async def _asked(self, url: httpx.URL) -> Blob | httpx.URL | _Again:
        """Ask an origin once: return the body, the target of a redirect, or a reason to try again.

        Only here httpx's errors become errors of the service.
        """
        host = host_of(url)
        request = httpx.Request("GET", url, headers=_HEADERS, extensions=self._extensions)
        try:
            async with aclosing(await self._transport.handle_async_request(request)) as reply:
                if reply.status_code in REDIRECTS and "location" in reply.headers:
                    return redirected(url, reply.headers["location"])
                if reply.status_code in RETRIED:
                    pause = retry_after(reply.headers)
                    text = f"{host} answered {reply.status_code}"
                    return _Again(OriginBusy(text, retry_after=pause or 0.0), pause)
                if reply.status_code != httpx.codes.OK:
                    raise OriginFailed(f"{host} answered {reply.status_code}")
                return await _body(reply, host, self._limits.max_bytes)
        except httpx.ConnectTimeout:
            return _Again(OriginTimedOut(f"{host} could not be connected to in time"))
        except httpx.TimeoutException:  # slow once, slow again: not worth a second wait
            raise OriginTimedOut(f"{host} did not send in time") from None
        except httpx.ConnectError as error:
            if _is_about_tls(error):
                raise OriginFailed(f"no TLS with {host}: check its certificate and port") from None
            text = f"no connection to {host}: check name and port"
            return _Again(OriginBusy(text, retry_after=0.0))
        except httpx.HTTPError:
            return _Again(OriginBusy(f"the connection to {host} broke", retry_after=0.0))


async def _body(reply: httpx.Response, host: str, most: int) -> Blob:
    """Return a body of at most `most` bytes, unpacked where it is packed."""
    coding = _coding(reply.headers.get("content-encoding", ""), host)
    declared = reply.headers.get("content-length", "")
    if not coding and declared.isdigit() and int(declared) > most:
        raise too_large(declared, most)
    pieces = _pieces(reply)
    try:
        return await whole(inflated(pieces, coding) if coding else pieces, most)
    except BadCoding as error:
        raise OriginFailed(f"{host} sent a body that {error}") from None


async def _pieces(reply: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes; raises OriginFailed for pieces of a few bytes."""
    size = pieces = 0
    async for chunk in reply.aiter_raw():
        size, pieces = size + len(chunk), pieces + 1
        if pieces > MOST_PIECES + size // SMALLEST_PIECE:
            raise OriginFailed("the origin sends its body in pieces of a few bytes")
        yield chunk


def _coding(given: str, host: str) -> str:
    """Return the coding to undo, empty without one; raises OriginFailed for one that is not read.

    Some origins send a name that is no compression, for example `utf-8` or `binary`.
    """
    packed = [
        each for each in (name.strip().lower() for name in given.split(",")) if each in PACKED
    ]
    if len(packed) > 1 or (packed and packed[0] not in CODINGS):
        raise OriginFailed(
            f"{host} sent a body compressed by {', '.join(packed)[:60]} although none was asked for"
        )
    return CODINGS[packed[0]] if packed else ""


def redirected(url: httpx.URL, location: str) -> httpx.URL:
    """Return the target of a redirect, checked like any URL; it never leads from https down to
    http.
    """
    host = host_of(url)
    if len(location) > MAX_URL:  # before it is escaped and joined, which takes 1 µs a character
        raise OriginFailed(f"{host} redirects to a URL of more than {MAX_URL} characters")
    try:
        target = parse_url(str(url.join(location)))
    except (httpx.InvalidURL, InvalidParameter, ValueError):
        raise OriginFailed(f"{host} redirects to what is no URL of http or https") from None
    if url.scheme == "https" and target.scheme == "http":
        raise OriginFailed(f"{host} redirects from https to http, which is not followed")
    return target


def retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds of the Retry-After header; None without it, and for a date."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _is_about_tls(error: BaseException | None) -> bool:
    """Return whether a TLS handshake failed, which is not worth another try."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def _outcome(error: ServiceError) -> str:
    match error:
        case OriginFailed() | NotFound():
            return "origin_failed"
        case TimedOut():
            return "timed_out"
        case TooLarge():
            return "too_large"
    return "refused"
