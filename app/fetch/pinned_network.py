"""Connect to checked addresses only: resolution, check and connection in one place.

The addresses are checked in an httpcore network backend, below TLS, so TLS still verifies the name.
The checked address is the address that is connected to, so a name that resolves differently the
second time changes nothing. A connection that is used again was checked when it was made.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from ipaddress import ip_address
from threading import Thread
from typing import Any, cast

import httpcore
import httpx

from app.admission.semaphore import FairSemaphore
from app.urls import Address, is_allowed, parse_host
from models.domain.errors import AddressRefused
from models.settings import Network

MOST_ADDRESSES = 128
"""Addresses of a name, at most: reading one takes 3 µs and checking it 40."""

LOOKUPS = 128
"""Names that one process looks up at a time."""

KEPT = 5.0
"""Seconds for which an idle connection stays open: the images of one request share connections."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""The client for which the present task fetches. httpcore has no other way to hand it through."""

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


class SystemResolver:
    """Resolver with a thread for each lookup, of which every client has a share.

    A call of getaddrinfo cannot be ended: where no name server answers, the call takes from 10 s to
    minutes. So a lookup keeps its thread and its client's turn until it has ended, also if its
    request is gone. A process that ends does not wait for the threads.
    """

    def __init__(self, lookups: int = LOOKUPS) -> None:
        self._turns = FairSemaphore(lookups)

    async def __call__(self, host: str, _port: int) -> Sequence[Address]:
        """Return the addresses of `host` in the system's order; raise OSError."""
        client, loop = asking.get(), asyncio.get_running_loop()
        await self._turns.take(client)
        answer: asyncio.Future[list[str] | OSError] = loop.create_future()
        answer.add_done_callback(lambda _: self._turns.give_back(client))

        def run() -> None:
            found = _look_up(host)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(answer.set_result, found)

        try:
            Thread(target=run, name="lookup", daemon=True).start()
        except RuntimeError:
            answer.set_result(OSError("no thread can be started to resolve a name"))
        found = await asyncio.shield(answer)
        if isinstance(found, OSError):
            raise found
        return [ip_address(entry) for entry in found]


def _look_up(host: str) -> list[str] | OSError:
    """Return the distinct addresses of a name, and no more than show that there are too many."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error.with_traceback(None)
    except Exception as error:  # a label that IDNA does not allow; in any case the turn must end
        return OSError(str(error))
    distinct = dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in found)
    return list(distinct)[: MOST_ADDRESSES + 1]


@functools.cache
def _public_authorities() -> ssl.SSLContext:
    """Load the public certificate authorities once for all transports: that takes 24 ms."""
    return httpx.create_ssl_context(trust_env=False)


class PinnedTransport(httpx.AsyncHTTPTransport):
    """Transport that connects to addresses that are public or in `networks`.

    The transport keeps `most_idle` connections open. `resolve`, `network` and `tls` replace names,
    connections and the public certificate authorities in tests.
    """

    def __init__(
        self,
        networks: Iterable[Network],
        most_idle: int,
        resolve: Resolve | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # The pool has no bound of its own, because a request that is cancelled before its
        # connection begins would keep its place for good
        # (https://github.com/encode/httpcore/issues/1093); callers bound the requests.
        super().__init__(
            verify=tls or _public_authorities(),
            trust_env=False,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=most_idle, keepalive_expiry=KEPT
            ),
        )
        # httpx has no public way to a network backend.
        backend = PinnedBackend(networks, resolve or SystemResolver(), network)
        self._pool._network_backend = backend


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Backend that resolves a host once, refuses it if any of its addresses is refused, and
    connects.

    One refused address is enough: a name with a private address is an attack or a mistake, and the
    order of the addresses must not decide.
    """

    def __init__(
        self,
        networks: Iterable[Network],
        resolve: Resolve,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._networks = tuple(networks)
        self._resolve = resolve
        self._network = network or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers; `timeout` is for all of it together.

        Raises AddressRefused, httpcore.ConnectError and httpcore.ConnectTimeout.
        """
        clock = asyncio.get_running_loop().time
        end = None if timeout is None else clock() + timeout
        try:
            async with asyncio.timeout_at(end):
                addresses = await self._vetted(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for others, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
            # Half of what is left, so that a silent first address leaves time for the second.
            share = None if end is None else max(0.0, end - clock()) / (2 if others else 1)
            try:
                stream = await self._network.connect_tcp(
                    str(address), port, share, local_address, socket_options
                )
                return cast(httpcore.AsyncNetworkStream, _ClosedIfCancelled(stream))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _vetted(self, host: str, port: int) -> Sequence[Address]:
        spelled = parse_host(host)
        try:
            found = [spelled] if spelled is not None else await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved") from error
        if len(found) > MOST_ADDRESSES:
            raise AddressRefused(f"{host} has more than {MOST_ADDRESSES} addresses")
        for address in found:
            if not is_allowed(address, self._networks):
                raise AddressRefused(
                    f"{host} leads to an address that is not public; "
                    "the operator can allow networks with DARKROOM_FETCH_ALLOWED_NETWORKS"
                )
        return found


class _ClosedIfCancelled:
    """Connection that is closed if its request is cancelled in the TLS handshake.

    httpcore leaves such a connection open.
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def start_tls(self, *args: Any, **kwargs: Any) -> httpcore.AsyncNetworkStream:
        try:
            return await self._inner.start_tls(*args, **kwargs)
        except BaseException:
            await self._inner.aclose()
            raise
