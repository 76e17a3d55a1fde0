"""Run a process by its orders: a front end or a worker of a server, or the server of a command.

`command` of the supervisor starts it. A worker imports nothing of HTTP: that would make its start
half a second longer.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from functools import partial
from typing import Any, NoReturn

import uvloop

from app.telemetry import logs
from models.exit_codes import ExitCode
from models.heartbeat import BEAT, Heartbeat
from models.malloc import freeze, keep_freed_memory
from models.settings import Settings
from workers.ipc.frames import Welcome
from workers.ipc.worker_server import WorkerServer
from workers.scheduling.worker import Worker
from workers.supervision.startup import GpuUnusable, start_worker

log = logging.getLogger("darkroom.member")

LOOK = 0.5
"""Seconds between two checks of the worker's threads."""

HUNG = 30.0
"""Seconds beyond the longest deadline after which a device hangs that got no work done."""

ALL_WORKERS = 60.0
"""Seconds in which a server that starts waits for all its workers once the first worker works: a
front end's warm-up is to reach each. A front end that starts later serves with the workers that
work."""

_PR_SET_PDEATHSIG = 1


class Orders:
    """Orders of the parent process on standard input: a line of JSON, and later to leave.

    `given` are the orders that the process was started with. `leave` is set by the order to take
    nothing new, to finish the accepted work, and to end. When the other end closes, the parent has
    gone, and this process ends at once. The kernel kills it too when its parent ends: it may be
    starting, a signal may have stopped it, or a thread may keep Python's lock. Signs of life go
    back on standard input, which is a socket then.
    """

    def __init__(self) -> None:
        line = sys.stdin.readline()
        if not line.endswith("\n"):
            sys.exit(ExitCode.ORPHANED)
        self.given = json.loads(line)
        self.leave = asyncio.Event()
        self._channel = sys.stdin.fileno()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.set_blocking(self._channel, False)  # a parent that is stopped must not stop this one

    def attach(self) -> None:
        """Read further orders in the running event loop, and tell the parent that it works."""
        asyncio.get_running_loop().add_reader(self._channel, self._receive)
        self._beating = asyncio.create_task(self._keep_beating())

    def ready(self) -> None:
        """Tell the parent that this process can work, once."""
        self._tell(b"{}\n")

    async def _keep_beating(self) -> None:
        while True:
            self._tell(b"\n")
            await asyncio.sleep(BEAT)

    def _tell(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the parent has ended, or does not read
            os.write(self._channel, message)

    def _receive(self) -> None:
        if not os.read(self._channel, 64):
            os._exit(ExitCode.ORPHANED)
        self.leave.set()


def run() -> int:
    """Follow the orders on standard input until told to stop; return the exit code."""
    orders = Orders()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is for the parent
    # Front ends handle it while they serve. SIGTERM comes before it, so a process that gets it here
    # already ends, and Python would print what it interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = Settings.model_validate(orders.given["settings"])
    logs.configure(settings.log_level, settings.log_format)
    if orders.given["role"] == "front-end":
        return _front_end(settings, orders)
    if orders.given["role"] == "private":
        return _private(settings, orders)
    try:
        return uvloop.run(_worker(settings, orders))
    except ValueError as error:  # of the settings: it would be the same the next time
        log.error("%s", error)
        return ExitCode.WRONG_USAGE


def _front_end(settings: Settings, orders: Orders) -> int:
    from app import main
    from app.admission.counters import Counters
    from app.connections.listening import is_listening
    from app.processes import uvicorn_server

    given = orders.given
    keep_freed_memory()
    listening = socket.socket(fileno=given["socket"])
    counters = Counters.attach(given["counters"], given["front_ends"])
    patience = 0.0 if is_listening(listening) else ALL_WORKERS
    connect = partial(main.remote_executor, addresses=given["addresses"], patience=patience)
    app = main.create_app(settings, connect, counters)
    scraped = [] if given["scraped"] is None else [socket.socket(fileno=given["scraped"])]
    return uvicorn_server.run(uvicorn_server.Server(app, settings, scraped, orders), [listening])


def _private(settings: Settings, orders: Orders) -> int:
    """Serve a single command until SIGTERM; standard output has a problem, if any."""
    from app import main
    from app.processes import plan as tree
    from app.processes import uvicorn_server

    given = orders.given
    listening = socket.socket(fileno=given["socket"])
    asked = {"weights": given["weights"], "full_batches": given["full_batches"]}
    try:
        plan = tree.Plan.of(settings)
        if plan.front_ends:
            return tree.run(settings, plan, listening, **asked)
    except ValueError as error:
        print(error, end="")
        return ExitCode.WRONG_USAGE
    app = main.create_app(settings, partial(main.local_executor, **asked), private=True)
    server = uvicorn_server.Server(app, settings, warms_up=False)
    return uvicorn_server.run(server, [listening], lambda fault: print(fault, end=""))


async def _worker(settings: Settings, orders: Orders) -> int:
    """Load and warm up, then let front ends in; after SIGTERM finish the accepted jobs.

    A worker that replaces a running worker ends if it cannot use its GPU. The exit code is
    WORKER_DIED if the worker ended unasked: another worker is started.
    """
    loop, stop, host = asyncio.get_running_loop(), asyncio.Event(), WorkerServer()
    given = orders.given
    loop.add_signal_handler(signal.SIGTERM, os._exit, 0)  # while nothing was accepted
    orders.attach()
    try:
        started = await asyncio.to_thread(
            start_worker,
            settings,
            host.on_batch,
            weights=given["weights"],
            gpu=given["gpu"],
            full_batches=given["full_batches"],
            stand_in="replaces" not in given,
        )
    except GpuUnusable:
        log.exception("nothing can take the place of a worker")
        return ExitCode.FAILED
    freeze()
    device = started.worker.load().device
    welcome = Welcome(device, started.networks, started.degraded)
    orders.ready()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(given["address"])
    listener.listen()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    worker = started.worker
    hosting = asyncio.create_task(host.serve(listener, worker, welcome))
    death = _death(worker, settings.max_deadline + HUNG)
    tasks = [hosting, *map(asyncio.create_task, (death, stop.wait(), orders.leave.wait()))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    asked = stop.is_set() or orders.leave.is_set()
    if not asked:
        log.critical("the worker died", exc_info=hosting.exception() if hosting.done() else None)
        _abandon(ExitCode.WORKER_DIED)
    host.retire()
    if not await asyncio.to_thread(worker.stop, settings.drain_timeout):
        log.error("images in work were not done within %s s", settings.drain_timeout)
        _abandon(ExitCode.OK)
    hosting.cancel()
    await asyncio.gather(hosting, return_exceptions=True)
    return ExitCode.OK


def _abandon(code: ExitCode) -> NoReturn:
    """End this process at once, with its threads.

    They may still write to slots, which front ends use again as soon as a connection is closed. So
    none may be closed before the threads have ended, and only the kernel can end them.
    """
    os._exit(code)


async def _death(worker: Worker[Any], patience: float) -> None:
    """Return when the worker's threads have ended without being stopped, or hang.

    They hang if none of the work on the device got on for `patience` seconds.
    """
    heart, progress = Heartbeat(LOOK), -1.0
    while (load := worker.load()).alive:
        if not load.running_jobs or load.progress != progress:
            heart.beat()
        elif (silence := heart.silence()) > patience:
            log.critical("%s got no work done for %.0f s", load.device, silence)
            return
        progress = load.progress
        await asyncio.sleep(LOOK)


if __name__ == "__main__":
    sys.exit(run())
