"""Run uvicorn and drain it in steps for load balancers: not ready, grace time, closed, finished."""

import asyncio
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from app.admission.counters import Counters
from app.connections.listening import ConnectionBalancer, announce, is_listening
from app.connections.protocol import (
    CLOSE,
    ConnectionLimits,
    ConnectionTable,
    GuardedProtocol,
    raise_limit,
)
from app.routes.middleware import is_loopback, metrics_only
from app.service import Service
from app.warm_up import warm_up
from models.domain.alarms import alarms
from models.exit_codes import ExitCode
from models.malloc import freeze
from models.settings import Settings
from models.settings_loading import IN_PLACE, reloaded

if TYPE_CHECKING:  # only servers with a port for gRPC load grpcio, and members load this module
    import grpc.aio

    from app.processes.member import Orders

log = logging.getLogger("darkroom.server")

LAST_ANSWERS = 2.0
"""Seconds after the drain timeout in which requests that were given up are answered."""

GRPC_CONNECTIONS = 256
"""Connections to the port for gRPC of one process."""

SCRAPERS = 64
"""Connections at the port for metrics, which has a limit of its own."""

LOOK = 0.1
"""Seconds between two checks for connections that are left."""

TURN = 0.5
"""Seconds between two checks for connections that are late; less for shorter timeouts."""


class WrongSettings(Exception):
    """The settings are impossible, and would be so at the next start too."""


class Server(uvicorn.Server):
    """Server that drains at SIGTERM; SIGINT, or a second SIGTERM, skips the grace time.

    Either ends a server that is still starting at once. With `orders` of a parent the server
    shares its socket with further front ends. `scraped` are the sockets of the port for metrics, if
    that port is set.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        scraped: Sequence[socket.socket] = (),
        orders: "Orders | None" = None,
        *,
        warms_up: bool = True,
    ) -> None:
        self.app = app
        self._settings = settings
        self._scraped = scraped
        self._orders = orders
        self._warms_up = warms_up
        self._application = AsyncExitStack()
        self._grace = settings.grace
        self._opened = False
        self._grpc: grpc.aio.Server | None = None
        self.exit_code: int = ExitCode.OK
        layer = app.middleware_stack  # without FastAPI's own calls, which only traces need
        super().__init__(config_of(layer if layer and not settings.tracing else app, settings))

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve, and leave the application however serving ends."""
        with self.capture_signals():  # until the application has ended
            async with self._application:
                await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections; called by uvicorn."""
        if self._orders is not None:
            self._orders.attach()
        try:
            lifespan = self.app.router.lifespan_context(self.app)
            await self._application.enter_async_context(lifespan)
        except ValueError as error:
            raise WrongSettings(str(error)) from error
        await super().startup([])
        if self._warms_up:
            await warm_up(self.app)
        freeze()
        settings, service = self._settings, self.app.state.service
        orders, listening = self._orders, sockets or []
        if orders is None or (orders.given["number"] == 0 and not is_listening(listening[0])):
            introduce(service, settings)  # one line for the server, and none for each front end
        if orders is not None:
            orders.ready()
            while not is_listening(listening[0]):  # noqa: ASYNC110 (the parent lets it listen)
                await asyncio.sleep(LOOK / 5)
        limits = ConnectionLimits.of(
            settings, raise_limit() - (GRPC_CONNECTIONS if settings.grpc_port else 0)
        )
        acceptors = self._accept(listening, limits, service.admission.counters, self.config)
        if self._scraped:
            few = replace(limits, connections=SCRAPERS, per_client=SCRAPERS)
            plain = settings.model_copy(update={"tls_certificate": None, "tls_key": None})
            config = config_of(metrics_only(self.config.loaded_app), plain)
            acceptors += self._accept(self._scraped, few, Counters(), config)
        if settings.grpc_port:
            from app.grpc_service.server import started

            self._grpc = await started(self.app, settings, GRPC_CONNECTIONS)
        self.servers = [cast(asyncio.Server, each) for each in acceptors]
        self._opened = True
        if self._orders is None:
            _reload_on_signal(service)
            announce(settings, listening[0])
        else:
            self._leaving = asyncio.create_task(self._leave(self._orders))

    def _accept(
        self,
        sockets: Sequence[socket.socket],
        limits: ConnectionLimits,
        counters: Counters,
        config: uvicorn.Config,
    ) -> list[ConnectionBalancer]:
        """Accept connections of sockets, and sweep over them."""
        metrics, state = self.app.state.service.metrics, self.server_state
        table = ConnectionTable(
            limits, counters, lambda reason: metrics.connections_ended.labels(reason).inc()
        )
        shortest = min(limits.header_timeout, limits.idle_timeout, limits.body_timeout)
        loop, seconds = asyncio.get_running_loop(), min(TURN, shortest / 4)

        def sweep() -> None:
            loop.call_later(seconds, sweep)
            metrics.connections.set(len(state.connections))
            table.sweep()

        sweep()
        return [
            ConnectionBalancer(
                each,
                lambda: GuardedProtocol(config, state, self.lifespan.state, table),
                counters,
                config.ssl,
                limits.header_timeout,
            )
            for each in sockets
        ]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does; after the drain timeout give up the requests that are left."""
        drain = self._settings.drain_timeout
        self._announce_end()
        ending = asyncio.get_running_loop().call_later(drain, self._give_up)
        self._stop_grpc(0.0 if self.force_exit else drain + LAST_ANSWERS)
        await super().shutdown(sockets)
        ending.cancel()
        if self.force_exit:  # uvicorn leaves the application to be cancelled: a traceback in logs
            self._give_up()
            _ = [task.cancel() for task in self.server_state.tasks]

    async def on_tick(self, counter: int) -> bool:
        """Return whether serving is to end; called by uvicorn ten times a second."""
        service = getattr(self.app.state, "service", None)
        if service is not None and service.worker_lost:
            log.critical("the worker died, and this process with it; it may be started again")
            self.exit_code = ExitCode.WORKER_DIED
            service.stopping.set()
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        """Handle SIGINT and SIGTERM; called by uvicorn in the main thread."""
        service = getattr(self.app.state, "service", None)
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
        """Let each answer say that its connection ends: its client opens a new connection."""
        if CLOSE not in self.config.encoded_headers:
            self.config.encoded_headers.append(CLOSE)
            default = self.server_state.default_headers
            self.server_state.default_headers = [*default, CLOSE]

    async def _leave(self, orders: "Orders") -> None:
        """Accept no more connections on the parent's order, and let the open connections end.

        Another front end accepts them. Each answer says that its connection ends, so that clients
        which are busy come back on a new connection; idle connections are closed when the grace
        time ends. Without connections the process ends at once.
        """
        await orders.leave.wait()
        acceptors, self.servers = cast(list[ConnectionBalancer], self.servers), []
        for each in acceptors:
            each.close()
        self._stop_grpc(self._grace + self._settings.drain_timeout + LAST_ANSWERS)
        if (jobs := self.app.state.service.jobs) is not None:
            jobs.leaving = True
        self._announce_end()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                while self.server_state.connections or any(each.taking for each in acceptors):  # noqa: ASYNC110 (two events)
                    await asyncio.sleep(LOOK)
        self._close()

    def _stop_grpc(self, seconds: float) -> None:
        """Take no more calls; the service waits at most `seconds` for the calls in progress."""
        if self._grpc is not None:
            ending = self.app.state.service.ending
            ending.append(asyncio.create_task(self._grpc.stop(seconds)))

    def _close(self) -> None:
        self.should_exit = True

    def _give_up(self) -> None:
        """End the requests that are left: each is answered with 503, or its unfinished images."""
        self.app.state.service.admission.draining = True
        alarms().end()


def introduce(service: Service, settings: Settings) -> None:
    """Log one line: device, network, weights, address and keys; warn of an open server."""
    computing = service.computing()
    networks = [
        f"{each.name} ({'no weights' if each.model is None else each.model.record.name})"
        for each in computing.networks
    ]
    device = service.backend.load().device
    address = f"{settings.host}:{settings.port}"
    keys = "none" if service.keys is None else str(settings.api_keys_file)
    text = "device %s; networks %s; address %s; API keys %s"
    log.info(text, device, ", ".join(networks) or "none", address, keys)
    if service.keys is None and not is_loopback(settings.host):
        log.warning(
            "everybody who can reach %s may use this server: set DARKROOM_API_KEYS_FILE, "
            "or listen at 127.0.0.1 behind a proxy",
            address,
        )


def _reload(service: Service) -> None:
    """Read the settings file and the API keys again; a wrong file changes nothing."""
    try:
        if service.keys is not None:
            service.keys.reload()
        found, later = reloaded(service.settings, IN_PLACE)
    except Exception as error:  # the server is protected: it goes on as it is
        log.error("nothing was reloaded: %s", error)
        return
    if later:
        log.warning("these settings need a restart: %s", ", ".join(later))
    reconfigure(service, found)
    log.info("the settings were read again; networks and weights are read at a start only")


def reconfigure(service: Service, settings: Settings) -> None:
    """Use other settings from now on; admitted work continues."""
    service.settings = settings
    service.admission.set_limits(settings)
    service.pipeline.files.limit = settings.max_bytes_in_flight
    service.fetcher.set_concurrency(settings.fetch_concurrency)
    service.set_batching(settings)


def _reload_on_signal(service: Service) -> None:
    """Reload on SIGHUP; say on SIGUSR2 that one process cannot replace itself."""
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, _reload, service)
        text = "SIGUSR2: one process cannot replace itself; serve with --front-ends"
        loop.add_signal_handler(signal.SIGUSR2, log.warning, text)


def config_of(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return the loaded configuration of a server that answers by `app`."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ws="none",
        lifespan="off",  # the server enters and leaves the application itself
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=[str(each) for each in settings.trusted_proxies],
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_ciphers="DEFAULT",
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout + LAST_ANSWERS),
    )
    config.load()
    return config


def run(
    server: Server,
    sockets: list[socket.socket],
    tell: Callable[[str], object] = log.critical,
) -> int:
    """Serve until told to stop; return the exit code.

    That is WORKER_DIED if the worker of this process ended, and WRONG_USAGE for impossible
    settings, of which `tell` is told: a supervisor starts no other process then.
    """
    try:
        server.run(sockets)
    except WrongSettings as error:
        tell(str(error))
        return ExitCode.WRONG_USAGE
    except Exception:
        log.critical("the server failed", exc_info=True)
        return ExitCode.FAILED
    return server.exit_code
