"""Connections to vetted addresses only: resolution, judgement and connect in one place.

An httpcore network backend, so TLS still verifies the name. What was judged is what is connected
to, so a name that answers differently the second time changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Any

import httpcore

from app.addresses import Address, is_allowed, literal
from models.errors import AddressRefused
from models.settings import Network

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


async def system_resolve(host: str, port: int) -> Sequence[Address]:
    """What the system's resolver says."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    return [ip_address(str(entry[4][0]).split("%")[0]) for entry in found]


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Resolves a host once, refuses it when any of its addresses is refused, connects to those."""

    def __init__(
        self,
        networks: Iterable[Network],
        resolve: Resolve = system_resolve,
        below: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._networks = tuple(networks)
        self._resolve = resolve
        self._below = below or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._vetted(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._below.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _vetted(self, host: str, port: int) -> Sequence[Address]:
        spelled = literal(host)
        try:
            found = [spelled] if spelled else await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved") from error
        for address in found:
            if not is_allowed(address, self._networks):
                raise AddressRefused(
                    f"{host} leads to an address that is not public; "
                    "the operator can allow networks with DARKROOM_FETCH_ALLOWED_NETWORKS"
                )
        return found

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        """Never."""
        raise AddressRefused("unix sockets are not fetched from")

    async def sleep(self, seconds: float) -> None:
        """What httpcore waits with between its own retries (it makes none here)."""
        await asyncio.sleep(seconds)
