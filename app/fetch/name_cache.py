"""Cache of resolved host names: a job of many images from one host asks its name server rarely.

What is kept are addresses only. They are checked again at every connection by
`pinned_network.PinnedBackend`, and the checked address is the one that is connected to, so a cached
name is guarded as a fresh one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.fetch.pinned_network import MOST_ADDRESSES, Resolve
from app.urls.address_policy import Address

MOST_NAMES = 4096
"""Names that are kept; the one that was resolved longest ago goes first."""

FAILURE = 5.0
"""Seconds for which a name that cannot be resolved is not asked for again."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The addresses of a name, or the error, until a time of the event loop's clock."""

    found: Sequence[Address] | OSError
    until: float


class CachingResolver:
    """Resolver that keeps what `resolve` returns for `seconds`, and its errors for FAILURE.

    The system's resolver does not tell how long an address is valid, so `seconds` is the same for
    all names. Callers that ask for the same name at the same time share the lookup of that
    resolver (`system_resolver.py`).

    `name` and `name.` are kept apart: the resolver may look the first one up in the domains of the
    machine too, so that one client could let the other name fail for all.
    """

    def __init__(
        self, resolve: Resolve, seconds: float, clock: Callable[[], float] | None = None
    ) -> None:
        self._resolve = resolve
        self._seconds = seconds
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._known: dict[str, _Known] = {}

    def __len__(self) -> int:
        """Return the number of names that are kept."""
        return len(self._known)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return the addresses of `host` in the resolver's order; raise OSError."""
        name = host.lower()
        known = self._known.get(name)
        if known is None or self._clock() >= known.until:
            found = await self._fresh(name, host, port)
        else:
            found = known.found
        if isinstance(found, OSError):
            raise OSError(*found.args)
        return found

    async def _fresh(self, name: str, host: str, port: int) -> Sequence[Address] | OSError:
        found: Sequence[Address] | OSError
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            found = error.with_traceback(None)
        lasts = min(FAILURE, self._seconds) if isinstance(found, OSError) else self._seconds
        self._known.pop(name, None)  # a dict keeps the order of insertion
        if lasts and (isinstance(found, OSError) or len(found) <= MOST_ADDRESSES):
            self._known[name] = _Known(found, self._clock() + lasts)
            if len(self._known) > MOST_NAMES:
                del self._known[next(iter(self._known))]
        return found
