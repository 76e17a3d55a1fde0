"""Resolve host names with the system's resolver, on threads of which every client has a share.

A call of getaddrinfo cannot be ended: where no name server answers it takes from 10 s to minutes.
So a lookup keeps its thread and its client's turn until it has ended, also if its request is gone.
"""

import asyncio
import socket
from _thread import start_new_thread
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_address

import httpcore

from app.admission.fair_queue import FairSemaphore, times_free
from app.fetch.pinned_network import MOST_ADDRESSES, asking
from app.urls.address_policy import Address

LOOKUPS = 128
"""Names that one resolver looks up at a time, by default."""

MOST_WAITING = 1024
"""Lookups that may wait for a thread, of all clients together."""

_Found = Sequence[str] | OSError


class SystemResolver:
    """Resolver with a thread for each running lookup; callers of the same name share one.

    A process that ends does not wait for the threads, nor for name servers.
    """

    def __init__(self, lookups: int = LOOKUPS) -> None:
        self._turns = FairSemaphore(lookups, times_free(1))
        self._running: dict[str, asyncio.Future[_Found]] = {}

    async def __call__(self, host: str, _port: int) -> Sequence[Address]:
        """Return the addresses of `host` in the system's order; raise OSError, or ConnectError if
        there are too many lookups.

        They are at most one more than MOST_ADDRESSES, which shows that there are too many. A caller
        that is cancelled while it waits for its turn is forgotten.
        """
        if host not in self._running:
            client = asking.get()
            await self._turn(client)
            if host in self._running:
                self._turns.give_back(client)
            else:
                self._start(host, client)
        found = await asyncio.shield(self._running[host])
        if isinstance(found, OSError):
            raise OSError(*found.args)
        return [ip_address(entry.partition("%")[0]) for entry in found]

    async def _turn(self, client: str) -> None:
        if not self._turns.take_now(client):
            if self._turns.waiting >= MOST_WAITING:
                raise httpcore.ConnectError("too many host names wait to be resolved")
            await self._turns.take(client)

    def _start(self, host: str, client: str) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Found] = loop.create_future()

        def ended(found: _Found) -> None:
            del self._running[host]
            self._turns.give_back(client)
            answer.set_result(found)

        def run() -> None:
            found = _look_up(host)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(partial(ended, found))

        try:
            # Thread.start would wait on the event loop until the new thread has run.
            start_new_thread(run, ())
        except RuntimeError:
            self._turns.give_back(client)
            raise httpcore.ConnectError("no thread can be started to resolve a name") from None
        self._running[host] = answer


def _look_up(host: str) -> _Found:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error.with_traceback(None)
    except Exception as error:  # a label that IDNA does not allow; in any case the turn must end
        return OSError(str(error))
    distinct: dict[str, None] = {}
    for *_, address in found:
        distinct[str(address[0])] = None
        if len(distinct) > MOST_ADDRESSES:
            break
    return list(distinct)
