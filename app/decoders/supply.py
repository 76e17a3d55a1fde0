"""Supply of new decoder processes, and of their fork server, which is restarted when it ends."""

import asyncio
import logging

from app.decoders.limits import Limits
from app.decoders.process import DecoderProcess
from app.decoders.processes import ForkServer

log = logging.getLogger("darkroom.decoders")


class Supply:
    """Starts a fork server with the first process; it belongs to one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._starting = asyncio.Lock()
        self._warned = False
        self.server: ForkServer | None = None

    async def fork(self) -> DecoderProcess:
        """Return a new process; raise Gone if none can be started."""
        async with self._starting:
            if self.server is None or not self.server.alive:
                await self.aclose()
                limits = self._limits
                self.server = await ForkServer.start(limits.max_pixels, limits.max_file)
            server = self.server
        decoder, problem = await server.fork()
        if problem and not self._warned:
            self._warned = True
            log.warning("decoder processes run without a part of their sandbox: %s", problem)
        return decoder

    async def aclose(self) -> None:
        """End the fork server, and all processes with it."""
        server, self.server = self.server, None
        if server is not None:
            await server.close()
