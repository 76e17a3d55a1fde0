"""Start gRPC where a port is set, and check before the start that it can be; imports no grpcio."""

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi import FastAPI

from app.connections.listening import bind
from app.grpc_service.limits.gate import MOST_CONNECTIONS, Gate
from app.service import Service
from models.settings import Settings

if TYPE_CHECKING:  # it imports grpcio, which the extra brings
    from app.grpc_service.server import GrpcServer

DESCRIPTORS = 3
"""Descriptors of a connection: that of its client, and both ends of that to grpcio."""


def check(settings: Settings) -> None:
    """Raise ValueError where a port is set and the extra is missing."""
    if settings.grpc_port and not all(map(_installed, ("grpc", "google.protobuf"))):
        raise ValueError(
            'DARKROOM_GRPC_PORT needs the extra `grpc`: in a checkout run `pip install ".[grpc]"`, '
            "or install requirements-grpc.lock"
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        return False


def check_port(settings: Settings) -> None:
    """Raise OSError if the port is in use: grpcio says so only after the networks were loaded."""
    if not settings.grpc_port:
        return
    try:
        for each in bind(settings.host, settings.grpc_port):
            each.close()
    except OSError as error:
        error.filename = f"{settings.host}:{settings.grpc_port} (--grpc-port)"
        raise


def most_connections(descriptors: int) -> int:
    """Return the limit of connections: at most a sixteenth of the files a process may open."""
    return max(1, min(MOST_CONNECTIONS, descriptors // 16))


def reserved(settings: Settings, descriptors: int) -> int:
    """Return how many of all descriptors may be taken by the connections of gRPC."""
    return DESCRIPTORS * most_connections(descriptors) if settings.grpc_port else 0


class Grpc:
    """The gRPC server of one process, if a port is set for it."""

    def __init__(self) -> None:
        self._server: GrpcServer | None = None
        self._service: Service | None = None

    async def start(self, app: FastAPI, settings: Settings) -> Gate | None:
        """Start it if there is a port for calls; return the gate that connections pass."""
        if not settings.grpc_port:
            return None
        from app.grpc_service.server import GrpcServer

        self._service = app.state.service
        self._server = await GrpcServer.start(app, settings)
        return self._server.gate

    def stop(self, seconds: float) -> None:
        """Take no more calls. The service waits at most `seconds` for the others before it ends."""
        if self._server is not None and self._service is not None:
            self._service.ending.append(asyncio.create_task(self._server.stop(seconds)))
