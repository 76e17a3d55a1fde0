"""The gRPC server of one front end, on the event loop of its HTTP server."""

import logging
from pathlib import Path

import grpc
import grpc.aio
from fastapi import FastAPI

from app.grpc_service.calls import MOST_CALLS, Calls
from app.service import Service
from models.settings import Settings

log = logging.getLogger("darkroom.server")

MOST_CONNECTIONS = 256
"""Connections of one front end. grpcio closes further ones at once; those that are idle are closed
after DARKROOM_IDLE_TIMEOUT."""

STREAMS = 100
"""Calls at the same time on one connection; further ones wait with their client."""

WINDOW = 1 << 16
"""Bytes of a message that a client may send before it is read."""

MILLISECONDS = 1000

SHORTEST_PING = 10_000
"""Milliseconds between two keepalive pings of a client; one that sends three earlier is closed."""

_OF_CLIENTS = ("Invalid encoding on", "ExecuteBatchError raised in core")
"""Begin what grpcio logs as errors with a traceback, for metadata that are no UTF-8 and for answers
whose client has left. Any client could fill the log with them."""


def is_fault(record: logging.LogRecord) -> bool:
    """Tell whether a record of grpcio is about more than what one client did."""
    return not str(record.msg).startswith(_OF_CLIENTS)


logging.getLogger("grpc._cython.cygrpc").addFilter(is_fault)


class GrpcServer:
    """A server that was started; `port` is where it listens."""

    def __init__(self, server: grpc.aio.Server, port: int) -> None:
        self._server = server
        self.port = port

    @classmethod
    async def start(cls, app: FastAPI, settings: Settings) -> "GrpcServer":
        """Listen beside HTTP; raises OSError if the port is in use."""
        service: Service = app.state.service
        largest = min(settings.grpc_max_message_bytes, settings.max_body_bytes)
        server = grpc.aio.server(
            handlers=[Calls(app, service, largest).handlers()],
            options=_options(settings, largest, shared=service.counters.front_ends > 1),
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.grpc_port}"
        try:
            if settings.tls_certificate is None:
                port = server.add_insecure_port(address)
            else:
                credentials = _credentials(settings.tls_certificate, settings.tls_key)
                port = server.add_secure_port(address, credentials)
        except RuntimeError:
            raise OSError(f"{address} cannot be listened at (--grpc-port)") from None
        await server.start()
        log.info("gRPC is at %s:%d", host, port)
        return cls(server, port)

    async def stop(self, seconds: float) -> None:
        """Take no more calls, and end those that have not ended `seconds` later."""
        await self._server.stop(seconds)


def _options(settings: Settings, largest: int, *, shared: bool) -> list[tuple[str, int]]:
    """Return the limits of connections; front ends listen at one port if it is `shared`."""
    idle = int(settings.idle_timeout * MILLISECONDS)
    headers = int(settings.header_timeout * MILLISECONDS)
    return [
        ("grpc.so_reuseport", int(shared)),
        ("grpc.max_receive_message_length", largest),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.max_metadata_size", settings.max_header_bytes // 4),
        ("grpc.absolute_max_metadata_size", settings.max_header_bytes),
        ("grpc.server_handshake_timeout_ms", headers),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.keepalive_time_ms", idle),
        ("grpc.keepalive_timeout_ms", headers),
        ("grpc.http2.min_ping_interval_without_data_ms", SHORTEST_PING),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", WINDOW),
    ]


def _credentials(certificate: Path, key: Path | None) -> grpc.ServerCredentials:
    chain = certificate.read_bytes()
    return grpc.ssl_server_credentials([(chain if key is None else key.read_bytes(), chain)])
