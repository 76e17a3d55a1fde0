"""One process of a server made of several: a front end or a worker, as its orders say.

The supervisor starts it as `python -m app.member NAME`; the name is for who lists processes.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any

from app import logs, main, server
from app.acceptor import Alone, Shared, Tally
from app.admission.counters import Counters
from app.garbage import settle
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.allocator import keep_freed_memory
from workers.host import Host
from workers.pair import AnyWorker
from workers.start import start_worker
from workers.wire import Welcome

log = logging.getLogger("darkroom.member")

LOOK = 0.5
"""Seconds between two looks at the worker's threads."""


def run() -> int:
    """What the orders on standard input say, until told to stop."""
    orders: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, name="lifeline", daemon=True).start()
    settings = Settings.model_validate(orders["settings"])
    logs.configure(settings.log_level)
    if orders["role"] == "worker":
        try:
            return asyncio.run(_worker(settings, orders["address"], orders["gpu"]))
        except ValueError as error:  # of the settings: it would be the same the next time
            log.error("%s", error)
            return ExitCode.WRONG_USAGE
    keep_freed_memory()
    tally = Tally(orders["tally"], orders["front_ends"])
    shared = Shared(socket.socket(fileno=orders["socket"]), tally, orders["number"])
    counters = Counters.attach(orders["counters"], orders["front_ends"])
    app = main.create_app(settings, orders["addresses"], counters)
    scraped = orders["scraped"]
    at_metrics = [] if scraped is None else [Shared(socket.socket(fileno=scraped), Alone())]
    server.Server(app, settings, shared, at_metrics).run()
    return 0


async def _worker(settings: Settings, address: str, gpu: int | None) -> int:
    """Load and warm up, then let front ends in; after SIGTERM finish what was accepted.

    The exit code is WORKER_DIED if the worker ended unasked: the supervisor starts another one.
    """
    loop, stop, host = asyncio.get_running_loop(), asyncio.Event(), Host()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # front ends still need it
    loop.add_signal_handler(signal.SIGTERM, os._exit, 0)  # while nothing was accepted
    started = await asyncio.to_thread(start_worker, settings, host.on_batch, gpu=gpu)
    settle()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    worker, labels = started.worker, started.labels
    welcome = Welcome(
        worker.load().device,
        started.record.model_dump() if started.record else None,
        (labels.name, list(labels.labels), list(labels.wnids)) if labels else None,
        started.problem,
        worker.load().takes_jpegs,
        started.degraded,
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        hosting = asyncio.create_task(host.serve(listener, worker, welcome))
        tasks = (hosting, asyncio.create_task(stop.wait()), asyncio.create_task(_death(worker)))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(worker.stop, settings.drain_timeout)
        hosting.cancel()
        (ended,) = await asyncio.gather(hosting, return_exceptions=True)
    if stop.is_set():
        return 0
    log.critical("the worker died", exc_info=ended if isinstance(ended, Exception) else None)
    return ExitCode.WORKER_DIED


async def _death(worker: AnyWorker) -> None:
    """Until the worker's threads have ended although nobody stopped them."""
    while worker.load().alive:  # noqa: ASYNC110 (threads tell no event loop of their end)
        await asyncio.sleep(LOOK)


def _end_with_parent() -> None:
    """The supervisor holds the other end of standard input for as long as it lives."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ExitCode.ORPHANED)


if __name__ == "__main__":
    sys.exit(run())
