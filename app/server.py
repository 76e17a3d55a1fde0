"""uvicorn with a drain that load balancers can follow: not ready, grace, closed, finished, 0."""

import asyncio
import logging
import math
import os
import signal
import socket
from types import FrameType
from typing import cast

import uvicorn
from fastapi import FastAPI

from app.acceptor import Acceptor, Shared
from models.exit_codes import ExitCode
from models.settings import Settings

log = logging.getLogger("darkroom.server")


class Server(uvicorn.Server):
    """SIGTERM starts the drain; SIGINT, or a second SIGTERM, skips the grace time.

    Either ends a server that is still starting at once. With `shared` it is one of several front
    ends at one socket.
    """

    def __init__(self, app: FastAPI, settings: Settings, shared: Shared | None = None) -> None:
        self._app = app
        self._shared = shared
        self._grace = settings.grace
        self.exit_code: int = ExitCode.OK
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn: the application, then the doors."""
        if self._shared is None:
            await super().startup(sockets)
            return
        await super().startup([])
        connections = self.server_state.connections
        acceptor = Acceptor(self._shared, self._protocol, lambda: len(connections))
        self.servers = [cast(asyncio.Server, acceptor)]

    def _protocol(self) -> asyncio.Protocol:
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        assert isinstance(made, asyncio.Protocol)
        return made

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second; True ends the serving."""
        service = getattr(self._app.state, "service", None)
        if service is not None and service.bereft:
            log.critical("the worker died, and this process with it; it may be started again")
            self.exit_code = ExitCode.WORKER_DIED
            service.stopping.set()
            return True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn on SIGINT and SIGTERM, in the main thread."""
        service = getattr(self._app.state, "service", None)
        if service is None:
            os._exit(0)  # still starting: nothing was accepted, and no thread need be waited for
        if sig == signal.SIGINT or service.stopping.is_set():
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True
            return
        service.stopping.set()
        asyncio.get_running_loop().call_later(self._grace, self._close)

    def _close(self) -> None:
        self.should_exit = True


def run(app: FastAPI, settings: Settings) -> int:
    """Serve until told to stop; the exit code is 0 after a drain, WORKER_DIED without a worker.

    With settings that can never work it is WRONG_USAGE.
    """
    server = Server(app, settings)
    try:
        server.run()
    except SystemExit:  # uvicorn's, after a start that failed
        if getattr(app.state, "wrong_settings", False):
            return ExitCode.WRONG_USAGE
        raise
    return server.exit_code
