"""Start gRPC where a port is set, and check before the start that it can be; imports no grpcio."""

import asyncio
from importlib.util import find_spec

from fastapi import FastAPI

from app.connections.listening import bind
from models.settings import Settings

MOST_CONNECTIONS = 256
"""Connections to the port for gRPC of one process."""


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


def reserved(settings: Settings) -> int:
    """Return how many descriptors the connections of gRPC may take."""
    return MOST_CONNECTIONS if settings.grpc_port else 0


class Grpc:
    """The gRPC server of one process, if a port is set for it."""

    async def start(self, app: FastAPI, settings: Settings) -> None:
        """Accept calls from now on if there is a port for them."""
        self._server = None
        if settings.grpc_port:
            from app.grpc_service.server import started

            self._service = app.state.service
            self._server = await started(app, settings)

    def stop(self, seconds: float) -> None:
        """Take no more calls. The service waits at most `seconds` for the others before it ends."""
        if self._server is not None:
            self._service.ending.append(asyncio.create_task(self._server.stop(seconds)))
