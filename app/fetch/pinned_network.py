"""Connect to checked addresses only: resolution, check and connection in one place.

It is an httpcore network backend, so TLS still verifies the name. The checked address is the one
that is connected to, so a name that resolves differently the second time changes nothing. A
connection that is used again was checked when it was made, by the same networks.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

from app.fetch.bounded_stream import BoundedStream
from app.urls.address_policy import Address, is_allowed, parse_host
from models.domain.errors import AddressRefused
from models.settings import Network

MOST_ADDRESSES = 128
"""Addresses of a name, at most: reading one takes 3 µs and checking it 40."""

asking: ContextVar[str] = ContextVar("asking", default="")
"""The client for which the present task fetches. httpcore has no other way to hand it through."""

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


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
                return BoundedStream(stream)
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

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        """Raise an error: Unix sockets are never connected to."""
        raise AddressRefused("unix sockets are not fetched from")

    async def sleep(self, seconds: float) -> None:
        """Wait between httpcore's own retries (it makes none here)."""
        await asyncio.sleep(seconds)


def pinned_transport(
    backend: PinnedBackend, most_idle: int, tls: ssl.SSLContext | None = None
) -> httpx.AsyncHTTPTransport:
    """Return a transport that connects only through `backend`, and keeps `most_idle` connections.

    `tls` holds the trusted certificates; by default they are the public authorities'.
    """
    tls = tls or httpx.create_ssl_context(trust_env=False)
    transport = httpx.AsyncHTTPTransport(verify=tls, trust_env=False)
    # httpx has no public way to a network backend. The pool has no bound of its own, because a
    # request that is cancelled before its connection begins would keep its place for good
    # (https://github.com/encode/httpcore/issues/1093); callers bound the requests.
    transport._pool = _Pool(
        ssl_context=tls,
        max_connections=None,
        max_keepalive_connections=most_idle,
        keepalive_expiry=5.0,
        network_backend=backend,
    )
    return transport


class _Pool(httpcore.AsyncConnectionPool):
    """Pool that sends no second request on a connection whose parser holds more than an answer."""

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        return _Connection(
            origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            network_backend=self._network_backend,
        )


class _Connection(httpcore.AsyncHTTPConnection):
    """Connection that has expired once bytes stand behind its answer (RFC 9112, section 9.2)."""

    def has_expired(self) -> bool:
        inner: Any = self._connection  # httpcore has no public way to its parser
        more = inner is not None and inner.is_idle() and inner._h11_state.trailing_data[0]
        return bool(more) or super().has_expired()
