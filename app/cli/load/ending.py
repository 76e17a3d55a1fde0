"""The end of a measurement by a signal: it stops the servers that the measurement started."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from models.exit_codes import ExitCode

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end and return the result; SIGTERM and SIGHUP cancel the work.

    SystemExit with the code TERMINATED is raised once the work has cleaned up. The default action
    of both signals would end this process at once, and leave the servers that it started.
    """

    async def cancellable() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                loop.add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise SystemExit(ExitCode.TERMINATED) from None
