"""Fakes of the network below the fetching of URLs: names, and connections that end at 127.0.0.1."""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import httpcore

from app.urls import Address


class Names:
    """A resolver with a list of answers for each name, given in turn; the last one is repeated."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._answers = {name: list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[Address]:
        self.asked.append(host)
        given = self._answers.get(host)
        if given is None:
            raise OSError(f"{host} is unknown")
        return [ip_address(text) for text in (given.pop(0) if len(given) > 1 else given[0])]


class Wires(httpcore.AsyncNetworkBackend):
    """A network that leads every address to 127.0.0.1 and records the addresses of connections.

    `dead` addresses refuse, `deaf` ones never answer; the first `failures` connections fail.
    """

    def __init__(
        self, dead: Sequence[str] = (), deaf: Sequence[str] = (), failures: int = 0
    ) -> None:
        self.connected: list[str] = []
        self._dead = dead
        self._deaf = deaf
        self._failures = failures
        self._real = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
        _local_address: str | None = None,
        _socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        self.connected.append(host)
        if host in self._dead or len(self.connected) <= self._failures:
            raise httpcore.ConnectError("refused")
        if host in self._deaf:
            try:
                async with asyncio.timeout(timeout):
                    await asyncio.Event().wait()
            except TimeoutError:
                raise httpcore.ConnectTimeout("no answer") from None
        return await self._real.connect_tcp("127.0.0.1", port, timeout)
