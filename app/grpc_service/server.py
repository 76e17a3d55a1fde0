"""The gRPC server of one front end, on the event loop of its HTTP server."""

import asyncio
import logging
import os

import grpc
import grpc.aio
from fastapi import FastAPI

from app.grpc_service.calls import MOST_CALLS, Calls
from app.grpc_service.limits.gate import LOOPBACK, MOST_CONNECTIONS, Gate
from app.service import Service
from models.settings import Settings

log = logging.getLogger("darkroom.server")

STREAMS = 100
"""Calls at the same time on one connection; further ones wait with their client."""

WINDOW = 1 << 16
"""Bytes of a message that a client may send before it is read."""

ARRIVING = 0.5
"""Seconds in which calls that clients have sent before the stop still begin. grpcio refuses calls
that it has received and not yet given to Python as UNAVAILABLE, and a busy event loop is late."""

MILLISECONDS = 1000

SHORTEST_PING = 10_000
"""Milliseconds between two keepalive pings of a client; one that sends three earlier is closed."""

METADATA = 4
"""Divides DARKROOM_MAX_HEADER_BYTES: the result is the limit of metadata. grpcio does not limit
their number, and 1,800 short ones took an event loop 3 ms."""

AGE = 5
"""Times DARKROOM_IDLE_TIMEOUT after which a connection takes no more calls, however busy it is.
Libraries of gRPC connect again and lose no call. Calls that it has may take the longest deadline.
"""

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # for errors that any client can cause

_OF_CLIENTS = ("Invalid encoding on", "ExecuteBatchError raised in core")
"""Begin what grpcio logs as errors with a traceback, for metadata that are no UTF-8 and for answers
whose client has left. Any client could fill the log with them."""


def is_fault(record: logging.LogRecord) -> bool:
    """Tell whether a record of grpcio is about more than what one client did."""
    return not str(record.msg).startswith(_OF_CLIENTS)


logging.getLogger("grpc._cython.cygrpc").addFilter(is_fault)


class GrpcServer:
    """A server that was started; clients reach it through its `gate`."""

    def __init__(self, server: grpc.aio.Server, gate: Gate) -> None:
        self._server = server
        self.gate = gate

    @classmethod
    async def start(cls, app: FastAPI, settings: Settings) -> "GrpcServer":
        """Answer the calls of clients that pass the gate."""
        service: Service = app.state.service
        largest = min(settings.grpc_max_message_bytes, settings.max_body_bytes)
        gate = Gate(settings.header_timeout)
        server = grpc.aio.server(
            handlers=[Calls(app, service, largest, gate).handlers()],
            options=_options(settings, largest),
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        gate.port = server.add_insecure_port(f"{LOOPBACK}:0")
        await server.start()
        log.info("gRPC is at port %d of %s", settings.grpc_port, settings.host)
        return cls(server, gate)

    async def stop(self, seconds: float) -> None:
        """Take no more calls, and end the calls that have not ended `seconds` later."""
        if self.gate.clients:
            await asyncio.sleep(min(ARRIVING, seconds))
        await self._server.stop(seconds)
        await self.gate.drained()


def _options(settings: Settings, largest: int) -> list[tuple[str, int]]:
    """Return the limits of connections and of their messages."""
    idle = int(settings.idle_timeout * MILLISECONDS)
    headers = int(settings.header_timeout * MILLISECONDS)
    deadline = int(settings.max_deadline * MILLISECONDS)
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.max_concurrent_streams", STREAMS),
        # What lies between a soft limit and the hard one is refused at random.
        ("grpc.max_metadata_size", settings.max_header_bytes // METADATA),
        ("grpc.absolute_max_metadata_size", settings.max_header_bytes // METADATA),
        ("grpc.server_handshake_timeout_ms", headers),
        ("grpc.http2.settings_timeout", headers),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.max_connection_age_ms", AGE * idle),
        ("grpc.max_connection_age_grace_ms", deadline + headers),
        ("grpc.keepalive_time_ms", idle),
        ("grpc.keepalive_timeout_ms", headers),
        ("grpc.http2.min_ping_interval_without_data_ms", SHORTEST_PING),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW),
    ]
