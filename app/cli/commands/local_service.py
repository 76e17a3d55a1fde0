"""A service in this process: files take the path of uploads, with the same engine and records."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from types import FrameType
from typing import Any

from app import main
from app.admission import Permit
from app.cli.commands import sources
from app.cli.commands.errors import WrongUsage
from app.intake.item import Item
from app.pipeline.outcomes import Answer
from app.service import Service
from app.telemetry import structured_logging
from app.telemetry.metrics import Metrics
from models.domain.errors import ServiceError
from models.exit_codes import ExitCode
from models.settings import Settings

AHEAD = 32
"""Files in work at a time: enough to fill micro-batches, few enough to hold in memory."""

ItemWork = Callable[[Service, Item, Permit], Awaitable[Answer]]


def run(answering: Coroutine[Any, Any, int]) -> int:
    """Run to the end and return the exit code; Ctrl-C or SIGTERM ends this process at once.

    Nothing is waited for then, in contrast to asyncio.run: not for the threads that load a network
    or compute. Blocks that clean up are left first, so no half-written file stays.
    """
    signal.signal(signal.SIGTERM, _terminated)
    loop = asyncio.new_event_loop()
    try:
        with _woken_by_signals(loop):
            return loop.run_until_complete(answering)
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)
    except SystemExit:
        os._exit(ExitCode.TERMINATED)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let signals wake the event loop, so that Python raises their exceptions at once.

    A signal that comes just before the loop begins to wait, or to another thread, does not
    interrupt the wait by itself: Ctrl-C would have no effect until something else happens.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        loop.add_reader(ours, ours.recv, 4096)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(ours)


async def answer_each(
    settings: Settings,
    files: Sequence[str],
    work: ItemWork,
    on_answer: Callable[[Service, Answer], None],
    *,
    needs_weights: bool = False,
    first: int = 0,
) -> int:
    """Call `on_answer` with the answer of every file, in order; the result is the exit code.

    The items are numbered from `first` on.
    """
    structured_logging.configure("warning", settings.log_format)
    try:
        service = await main.start_service(settings, Metrics(), needs_weights)
    except ValueError as error:  # of wrong settings: weights that do not fit their labels, no GPU
        raise WrongUsage(str(error)) from None
    try:
        if needs_weights and service.model is None:
            raise WrongUsage(str(service.computing().weights_problem))
        failed = await _answered(service, files, work, on_answer, first)
    except Exception:  # re-raised; Ctrl-C and SIGTERM wait for nothing
        await main.stop_service(service)
        raise
    await main.stop_service(service)
    return ExitCode.FAILED if failed else ExitCode.OK


async def _answered(
    service: Service,
    files: Sequence[str],
    work: ItemWork,
    on_answer: Callable[[Service, Answer], None],
    first: int,
) -> int:
    """Return the number of files that failed."""
    failed = 0
    with service.admission.admit(0, 0) as permit:
        async with contextlib.aclosing(_in_order(service, files, work, permit, first)) as answers:
            async for answer in answers:
                failed += isinstance(answer.outcome, ServiceError)
                on_answer(service, answer)
    return failed


async def _in_order(
    service: Service, files: Sequence[str], work: ItemWork, permit: Permit, first: int = 0
) -> AsyncGenerator[Answer, None]:
    under_way: list[asyncio.Future[Answer]] = []
    try:
        for number, name in enumerate(files, first):
            # On a thread: the read of a pipe waits, and only the event loop is woken by signals.
            item = Item(number, await asyncio.to_thread(sources.content, name), name)
            under_way.append(asyncio.ensure_future(work(service, item, permit)))
            if len(under_way) >= AHEAD:
                yield await under_way.pop(0)
        while under_way:
            yield await under_way.pop(0)
    finally:
        for task in under_way:  # they are left where a run ends early
            task.cancel()


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.TERMINATED)
