"""A worker's sockets: any number of front ends submit jobs, each through its arena.

Guarantees: every `Submit` is answered by exactly one `Done`, after the last access to its slot; a
front end that leaves or sends nonsense affects only its own jobs.
"""

import asyncio
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from models.domain.job import Operation
from workers.ipc import conversion, frame_protocol
from workers.ipc.arena import Arena
from workers.ipc.client_session import ClientSession
from workers.ipc.frames import Leaving, Welcome
from workers.scheduling.batch import Batch
from workers.scheduling.engine import BatchResult
from workers.scheduling.throughput import BusyTime
from workers.scheduling.worker import Worker

log = logging.getLogger("darkroom.host")

PAUSE = 0.1
"""Seconds between two checks of the load, or two tries to accept."""

REPORT = 0.5
"""Seconds after which the load is reported although it has not changed: a sign of life."""

HANDSHAKE = 5.0
"""Seconds in which a front end must hand its arena over."""


class WorkerServer:
    """Server that lets front ends use one started worker; `on_batch` is the worker's observer."""

    def __init__(self, decode: Callable[[Any], Operation] = conversion.decode_operation) -> None:
        self.decode = decode
        self._busy = BusyTime()
        self.decoded = 0
        self._sessions: set[ClientSession] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._retired = False

    async def serve(self, listener: socket.socket, worker: Worker[Any], welcome: Welcome) -> None:
        """Accept front ends until cancelled, then close their connections.

        Cancel it only when the worker has ended its threads: a front end uses the slots of jobs
        again when their connection is closed. After any other error connections stay open.
        """
        listener.setblocking(False)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_telling())
                self._accepting = tasks.create_task(self._accept(listener, worker, welcome, tasks))
        except asyncio.CancelledError:
            for session in self._sessions:
                session.protocol.close()
            await asyncio.sleep(0)  # the loop hangs up in its next turn
            raise

    def retire(self) -> None:
        """Give the address up: front ends connect to the next worker there, and wait for this
        one. One that is connecting meanwhile is turned away, before it has submitted anything.
        """
        self._retired = True
        if self._accepting is not None:
            self._accepting.cancel()
        for session in self._sessions:
            session.protocol.send([Leaving()])

    async def _accept(
        self,
        listener: socket.socket,
        worker: Worker[Any],
        welcome: Welcome,
        tasks: asyncio.TaskGroup,
    ) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # too many open files, say
                    log.error("no front end can be let in: %s", error)
                    await asyncio.sleep(PAUSE)
                    continue
                tasks.create_task(self._admit(connection, worker, welcome))

    def _decoded(self, encoded: Any) -> Operation:
        self.decoded += 1
        return self.decode(encoded)

    def leave(self, session: ClientSession) -> None:
        """Forget a front end that has closed its connection."""
        self._sessions.discard(session)

    def on_batch(self, batch: Batch, _result: BatchResult) -> None:
        """Report a finished batch to one of the front ends; called on a collect thread."""
        session, _ = batch.tickets[0].tag
        session.batched(batch, self._busy.add(batch.launched_at, time.monotonic()))

    async def _keep_telling(self) -> None:
        """Report the load regularly, because it also changes without a message from a front end."""
        for turn in itertools.count(1):
            await asyncio.sleep(PAUSE)
            for session in self._sessions:
                session.report(always=turn % round(REPORT / PAUSE) == 0)

    async def _admit(
        self, connection: socket.socket, worker: Worker[Any], welcome: Welcome
    ) -> None:
        session: ClientSession | None = None
        try:
            if not frame_protocol.same_user(connection):
                raise PermissionError("a process of another user")
            arena = await _received_arena(connection)
            made = session = ClientSession(worker, arena, self._decoded, self.leave)
            self._sessions.add(session)
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: made.protocol, sock=connection)
        except BaseException as error:
            connection.close()
            if session is not None:
                session.protocol.connection_lost(None)  # once: a later call does nothing
            if not isinstance(error, Exception):
                raise
            # The other front ends are protected. A log record with the error itself would keep the
            # arena mapped, by the frames of its traceback.
            log.warning("a front end was turned away: %s", str(error))
            return
        if self._retired:
            session.protocol.close()
        else:
            session.protocol.send([welcome])


async def _received_arena(connection: socket.socket) -> Arena:
    """Return the arena whose descriptor is a front end's first message."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    connection.setblocking(False)
    # asyncio has no call that receives descriptors, so this waits until `recv_fds` finds the
    # message.
    loop.add_reader(connection, readable.set)
    try:
        async with asyncio.timeout(HANDSHAKE):
            await readable.wait()
    finally:
        loop.remove_reader(connection)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        raise ValueError("it sent no arena")
    try:
        return Arena(descriptors[0])
    except BaseException:
        os.close(descriptors[0])
        raise
