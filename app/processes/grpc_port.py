"""Accept the connections of the port for gRPC as those of HTTP are accepted."""

from collections.abc import Callable
from dataclasses import replace

from fastapi import FastAPI

from app.connections.descriptors import raise_limit
from app.connections.entrance import Entrance
from app.connections.guard import Guard
from app.connections.limits import ConnectionLimits
from app.connections.listening import bind
from app.connections.tls.contexts import http2_context
from app.grpc_service.starting import Grpc, most_connections
from app.processes.connection_balancer import ConnectionBalancer, SharedSocket
from app.processes.connection_counts import Alone
from app.service import Service
from models.settings import Settings

Guarded = Callable[[ConnectionLimits], tuple[Guard, Entrance]]


async def accepting(
    grpc: Grpc, app: FastAPI, settings: Settings, limits: ConnectionLimits, guarded: Guarded
) -> list[ConnectionBalancer]:
    """Start gRPC if the settings have a port for it; return what accepts its connections.

    Each front end has a socket of its own at the port, among which the kernel chooses.
    """
    gate = await grpc.start(app, settings)
    if gate is None:
        return []
    service: Service = app.state.service
    most = most_connections(raise_limit())
    few = replace(limits, connections=most, per_client=min(limits.per_client, most * 3 // 4))
    _, entrance = guarded(few)
    entrance.most_refused = 0
    sockets = bind(settings.host, settings.grpc_port, shared=service.counters.front_ends > 1)
    return [
        ConnectionBalancer(
            SharedSocket(each, Alone()),
            gate.connected,
            lambda: gate.open,
            entrance,
            http2_context(settings),
            limits.header_timeout,
        )
        for each in sockets
    ]
