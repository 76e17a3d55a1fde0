"""Run one reader of a bulk command: read and decode images, let workers compute, return records.

The command starts it as `python -m app.bulk.engines.child NAME`.
"""

import asyncio
import base64
import os
import pickle
import signal
import socket
import sys
import traceback

import uvloop

from app import main
from app.admission.counters import Counters
from app.bulk.engines import in_process
from app.bulk.engines.channel import Chunk, Done, Frame, Hello, Refused, receive, send
from app.bulk.engines.in_process import InProcess, Work
from app.bulk.errors import CannotWrite, WrongUsage
from app.executors import Workers
from app.processes.computing import tune
from app.processes.orders import Orders
from app.telemetry import logs
from app.telemetry.metrics import Metrics
from models.exit_codes import ExitCode
from models.settings import Settings


def encode_work(work: Work) -> str:
    """Return work as text for the orders of a reader."""
    return base64.b64encode(pickle.dumps(work)).decode()


def run() -> int:
    """Do what the orders on standard input say until the command closes the channel."""
    orders = Orders()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is for the command
    settings = Settings.model_validate(orders.first["settings"])
    logs.configure("warning", settings.log_format)
    return uvloop.run(_serve(settings, orders))


async def _serve(settings: Settings, given_by: Orders) -> int:
    given_by.attach()
    orders = given_by.first
    work: Work = pickle.loads(base64.b64decode(orders["work"]))  # noqa: S301 (of our own parent)
    counters = Counters.attach(orders["counters"], orders["readers"])
    channel = socket.socket(fileno=orders["channel"])
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    try:
        service = await main.start_service(
            settings, Metrics(), work.needs_weights, Workers(orders["addresses"]), counters
        )
        engine = await in_process.start(settings, work, service)
    except (ValueError, WrongUsage) as error:
        send(writer, Hello(None, str(error)))
        await writer.drain()
        return ExitCode.WRONG_USAGE
    tune()
    identity = engine.identity
    given_by.ready()
    send(writer, Hello(None if identity is None else dict(identity)))
    under_way: set[asyncio.Task[None]] = set()
    try:
        while True:
            task = asyncio.create_task(_answer(engine, await receive(reader), writer))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            task.add_done_callback(end_if_failed)
    except asyncio.IncompleteReadError:  # the command has ended, or needs no reader any more
        return ExitCode.OK


def end_if_failed(task: "asyncio.Task[None]") -> None:
    """End this process at once if a chunk ended without an answer, which nothing else tells.

    The command gives the chunk to another reader, and ends when several ended this way.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error)
        os._exit(ExitCode.FAILED)


async def _answer(engine: InProcess, chunk: Chunk, writer: asyncio.StreamWriter) -> None:
    records: list[tuple[bytes, bool]] = []
    frame: Frame = Done(chunk.number, records)
    try:
        async for finished in engine.answers(each.task() for each in chunk.tasks):
            records += ((each.line, each.failed) for each in finished)
    except CannotWrite as error:
        frame = Refused(str(error))
    send(writer, frame)


if __name__ == "__main__":
    sys.exit(run())
