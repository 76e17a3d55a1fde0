"""Run uvicorn and drain it in steps for load balancers: not ready, grace time, closed, finished."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import cast

import uvicorn
from fastapi import FastAPI

from app.admission.counters import Counters
from app.connections.bare.silent_connections import Member, SilentConnections, refuse_none
from app.connections.descriptors import raise_limit
from app.connections.entrance import Entrance, Ticket
from app.connections.guard import Guard
from app.connections.http1.bare_refusals import BareRefusals
from app.connections.http1.cycle import CLOSE
from app.connections.http1.protocol import GuardedProtocol
from app.connections.limits import ConnectionLimits
from app.connections.listening import announce, bind, bind_metrics, is_listening, listens
from app.connections.phases import Timer
from app.grpc_service.starting import Grpc, reserved
from app.processes import reconfigure
from app.processes.connection_balancer import ConnectionBalancer, SharedSocket
from app.processes.connection_counts import Alone
from app.processes.gc_tuning import freeze
from app.processes.introduction import introduce
from app.processes.orders import Orders
from app.processes.uvicorn_config import LAST_ANSWERS, config_of, wrong_settings
from app.routes.images.early_refusal import EarlyRefusal
from app.routes.metrics_only import MetricsOnly
from app.telemetry.metrics import Metrics
from app.warm_up import warm_up
from models.domain.alarms import alarms
from models.exit_codes import ExitCode
from models.settings import Settings

log = logging.getLogger("darkroom.server")

SCRAPERS = 64
"""Connections at the port for metrics, which has a limit of its own."""

TURN = 0.5
"""Seconds between two checks for connections that are late; less for shorter timeouts."""


class Server(uvicorn.Server):
    """Server that drains at SIGTERM; SIGINT, or a second SIGTERM, skips the grace time.

    Either ends a server that is still starting at once. With `shared` it is one of several front
    ends at one socket, and obeys its parent's `orders`. `scraped` are the sockets of the port for
    metrics, if there is one.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        shared: SharedSocket | None = None,
        scraped: Sequence[SharedSocket] = (),
        orders: Orders | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._shared = shared
        self._scraped = scraped
        self._orders = orders
        self._grace = settings.grace
        self._timers: list[Timer] = []
        self._silent: list[SilentConnections] = []
        self._entrances: list[Entrance] = []
        self._opened = False
        self._grpc = Grpc()
        self._left: list[ConnectionBalancer] = []
        """The closed acceptors of a front end that leaves."""
        self.exit_code: int = ExitCode.OK
        super().__init__(config_of(app, settings))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections; called by uvicorn."""
        if self._orders is not None:
            self._orders.attach()
        await super().startup([])
        await warm_up(self._app)
        freeze()
        settings, service = self._settings, self._app.state.service
        if self._shared is not None and self._orders is not None:
            first = self._orders.first.get("number") == 0 and not is_listening(self._shared.socket)
            if first:  # one line for the server, and none for each front end
                introduce(self._app.state.service, self._settings)
            self._orders.ready()
            await listens(self._shared.socket)
        elif self._shared is None:
            introduce(self._app.state.service, self._settings)
        limits = ConnectionLimits.of(settings, raise_limit() - reserved(settings))
        (metrics := service.metrics).connection_limit.set(limits.connections)
        main = self._guarded(limits, metrics, service.counters, self.config.is_ssl)
        refusal = EarlyRefusal(self._app)
        main[0].decide, main[0].pressed = refusal, refusal.pressed
        few = replace(limits, connections=SCRAPERS, per_client=SCRAPERS)
        alone = [SharedSocket(each, Alone()) for each in sockets or ()]
        listening = [self._shared] if self._shared else alone
        acceptors = [self._acceptor(each, main, self.config) for each in listening]
        if self._scraped:
            scraping = self._guarded(few, metrics, Counters(), encrypted=False)
            plain = settings.model_copy(update={"tls_certificate": None, "tls_key": None})
            config = config_of(MetricsOnly(self.config.loaded_app), plain)
            acceptors += [self._acceptor(each, scraping, config) for each in self._scraped]
        await self._grpc.start(self._app, settings)
        self.servers = [cast(asyncio.Server, each) for each in acceptors]
        self._opened = True
        if self._orders is None:
            reconfigure.listen(service)
            announce(settings, [each.socket for each in listening])
        else:
            self._obeying = asyncio.create_task(self._obey(self._orders))

    def _guarded(
        self, limits: ConnectionLimits, metrics: Metrics, counters: Counters, encrypted: bool
    ) -> tuple[Guard, Entrance]:
        guard = Guard(limits, lambda reason: metrics.connection_end(reason).inc())
        entrance = Entrance(guard, counters, encrypted)
        self._entrances.append(entrance)
        connections = self.server_state.connections

        def sweep() -> None:
            metrics.connections.set(len(connections))
            guard.sweep()
            entrance.sweep()

        shortest = min(limits.header_timeout, limits.idle_timeout)
        self._timers.append(Timer(sweep, min(TURN, shortest / 4)))
        return guard, entrance

    def _acceptor(
        self, shared: SharedSocket, guarded: tuple[Guard, Entrance], config: uvicorn.Config
    ) -> ConnectionBalancer:
        guard, entrance = guarded
        state, app_state = self.server_state, self.lifespan.state

        def connected(ticket: Ticket) -> asyncio.Protocol:
            return GuardedProtocol(config, state, app_state, guard, ticket.client, ticket.leave)

        def count() -> int:
            return len(state.connections) + waiting()

        def waiting() -> int:
            return silent.arrivals.waiting

        members = cast(set[Member], state.connections)
        bare = BareRefusals(guard, lambda: state.default_headers)
        # The bytes of an encrypted connection are no request before its TLS handshake.
        silent = SilentConnections(guard, members, refuse_none if config.is_ssl else bare)
        self._silent.append(silent)
        seconds = guard.limits.header_timeout
        begins = silent.enter, waiting, guard.pressed
        return ConnectionBalancer(shared, connected, count, entrance, config.ssl, seconds, *begins)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, then close silent connections and those that were refused."""
        drain = self._settings.drain_timeout
        self._announce_end()
        ending = asyncio.get_running_loop().call_later(drain, self._give_up)
        self._grpc.stop(0.0 if self.force_exit else drain + LAST_ANSWERS)
        await super().shutdown(sockets)
        ending.cancel()
        if self.force_exit:  # uvicorn leaves the application to be cancelled: a traceback in logs
            self._give_up()
            _ = [task.cancel() for task in self.server_state.tasks]
            await self.lifespan.shutdown()
        for timer in self._timers:
            timer.end()
        for silent in self._silent:
            silent.end()
        for entrance in self._entrances:
            entrance.end()

    async def on_tick(self, counter: int) -> bool:
        """Return whether serving is to end; called by uvicorn ten times a second."""
        service = getattr(self._app.state, "service", None)
        if service is not None and service.worker_lost:
            log.critical("the worker died, and this process with it; it may be started again")
            self.exit_code = ExitCode.WORKER_DIED
            service.stopping.set()
            return True
        busy = self.server_state.connections or any(each.taking for each in self._left)
        if self._left and not busy:
            self._close()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """Handle SIGINT and SIGTERM; called by uvicorn in the main thread."""
        service = getattr(self._app.state, "service", None)
        if service is None or not self._opened:
            # still starting: nothing was accepted, and no thread need be waited for
            os._exit(ExitCode.INTERRUPTED if sig == signal.SIGINT else ExitCode.OK)
        if sig == signal.SIGINT:
            self.exit_code = ExitCode.INTERRUPTED
        if sig == signal.SIGINT or service.stopping.is_set():
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True
            return
        service.stopping.set()
        self._announce_end()
        asyncio.get_running_loop().call_later(self._grace, self._close)

    def _announce_end(self) -> None:
        """Let each answer say that its connection ends, so that its client opens another one."""
        if CLOSE not in self.config.encoded_headers:
            self.config.encoded_headers.append(CLOSE)
            default = self.server_state.default_headers
            self.server_state.default_headers = [*default, CLOSE]

    async def _obey(self, orders: Orders) -> None:
        """Leave on the parent's order."""
        while not (await orders.next()).get("leave"):
            pass
        self.leave()

    def leave(self) -> None:
        """Accept no more connections, because another front end does; let the open ones end.

        Each answer says that its connection ends, so that clients which are busy come back on a new
        one; the idle ones are closed when the grace time ends. Without connections it ends at once.
        """
        for each in self.servers:
            each.close()
        self._left, self.servers = cast(list[ConnectionBalancer], self.servers), []
        self._grpc.stop(self._grace + self._settings.drain_timeout + LAST_ANSWERS)
        if (jobs := self._app.state.service.jobs) is not None:
            jobs.leaving = True
        self._announce_end()
        asyncio.get_running_loop().call_later(self._grace, self._close)

    def _close(self) -> None:
        self.should_exit = True

    def _give_up(self) -> None:
        """End the requests that are left: each is answered with 503, or its unfinished images."""
        self._app.state.service.admission.draining = True
        alarms().end()


def run(app: FastAPI, settings: Settings) -> int:
    """Serve until told to stop; return 0, WORKER_DIED, or WRONG_USAGE for impossible settings."""
    sockets = bind(settings.host, settings.port)
    scraped = bind_metrics(settings)
    server = Server(app, settings, scraped=[SharedSocket(each, Alone()) for each in scraped])
    try:
        server.run(sockets)
    except SystemExit:  # uvicorn's, after a start that failed
        if not (fault := wrong_settings(app)):
            raise
        log.critical("%s", fault)
        return ExitCode.WRONG_USAGE
    return server.exit_code
