"""Start gRPC where a port is set, and check before the start that it can be; imports no grpcio."""

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi import FastAPI

from app.connections.listening import bind
from app.service import Service
from models.settings import Settings

if TYPE_CHECKING:  # it imports grpcio, which the extra brings
    from app.grpc_service.server import GrpcServer


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
        text = f"{error.strerror} (--grpc-port {settings.grpc_port})"
        raise OSError(error.errno, text) from None


class Grpc:
    """The gRPC server of one process, if a port is set for it."""

    def __init__(self) -> None:
        self._server: GrpcServer | None = None
        self._service: Service | None = None

    async def start(self, app: FastAPI, settings: Settings) -> None:
        """Answer calls from now on if there is a port for them."""
        if settings.grpc_port:
            from app.grpc_service.server import GrpcServer

            self._service = app.state.service
            self._server = await GrpcServer.start(app, settings)

    def stop(self, seconds: float) -> None:
        """Take no more calls. The service waits at most `seconds` for the others before it ends."""
        if self._server is not None and self._service is not None:
            self._service.ending.append(asyncio.create_task(self._server.stop(seconds)))
