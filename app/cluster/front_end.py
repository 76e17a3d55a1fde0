"""A replica of the deployment that speaks HTTP: the application, with the workers behind it."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import main
from app.cluster.worker_replica import reserved
from app.executors import Executor, Workers
from app.processes.gc_tuning import freeze
from app.service import Computing
from app.telemetry import logs
from models.settings import Settings
from workers.cluster.backend import RayBackend
from workers.cluster.messages import DESCRIPTION, Description
from workers.cluster.serve_handle import ServeWorkers
from workers.ipc.encoded_network import decode_network

LEAST_GROUP = 16
"""Images that a call may carry at least: a small batch on a CPU does not make more calls."""


class FrontEnd:
    """The HTTP application for `settings`, as JSON values; `workers` is the deployment's handle.

    `serve.ingress` derives a class from this one, which runs the application.
    """

    def __init__(self, workers: Any, settings: dict[str, Any]) -> None:
        found = Settings.model_validate(settings)
        logs.configure(found.log_level, found.log_format)
        cpus, _ = reserved()
        # GPUs of this node belong to workers, also those that this process could see.
        here = {"threads": found.threads or cpus, "gpus": "0"}
        self._settings = found.model_copy(update=here)
        self._workers = ServeWorkers(workers)
        self._backend: RayBackend | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application; its parts start with it."""
        app = main.create_app(self._settings, Workers(connect=self._executor))
        assert app.middleware_stack is not None
        app.middleware_stack = WholeBodies(app.middleware_stack)
        freeze()
        return app

    async def check_health(self) -> None:
        """Raise RuntimeError if answers would name weights that the workers have no more.

        Ray Serve then replaces this replica by one that asks the workers anew.
        """
        if self._backend is not None and self._backend.replicas.changed:
            raise RuntimeError("the workers have other weights; this front end must start anew")

    async def _executor(self, settings: Settings) -> Executor:
        """Connect to the workers, waiting for the first one."""
        found = DESCRIPTION.decode(await self._workers.describe())
        watchers: list[Callable[[], None]] = []

        def changed() -> None:
            for each in watchers:
                each()

        backend = self._backend = RayBackend(
            self._workers,
            settings.drain_timeout,
            group=max(LEAST_GROUP, found.max_batch_size),
            identity=found.identity,
            on_change=changed,
        )
        computing = Computing(tuple(map(decode_network, found.networks)), found.degraded)

        def watch(set_busy: Callable[[int, int], None]) -> None:
            watchers.append(lambda: set_busy(*busy_images(backend, found)))
            watchers[-1]()

        absence = backend.replicas.absence
        return Executor(backend, lambda: computing, absence=absence, watch_busy=watch)


class WholeBodies:
    """ASGI application that sends bodies of `app` as bytes: Ray pickles them on their way.

    Darkroom sends large bodies as views, so that a server's socket copies them and nothing else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def whole(message: Message) -> None:
            if isinstance(message.get("body"), memoryview | bytearray):
                message = {**message, "body": bytes(message["body"])}
            await send(message)

        await self._app(scope, receive, whole)


def busy_images(backend: RayBackend, found: Description) -> tuple[int, int]:
    """Return the images that keep all replicas busy, and those that fill their batches on CPUs.

    A front end cannot see what others have, so each counts as if it were alone.
    """
    busy = max(1, backend.replicas.busy_images)
    return busy, 0 if backend.load().on_gpu else busy * found.max_batch_size
