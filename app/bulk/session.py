"""One run of a bulk command: start an engine, answer the images that are left, keep records."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol

from app.bulk.engines.engine import Engine, Finished, Task
from app.telemetry import structured_logging
from models.exit_codes import ExitCode
from models.settings import Settings

Start = Callable[[], Awaitable[Engine]]
"""Starts the engine; raises WrongUsage where it cannot do the work."""


class Sink(Protocol):
    """Takes the records of a run, in order."""

    def begin(self, identity: Mapping[str, object] | None) -> None:
        """Prepare for records that the network `identity` makes."""

    def keep(self, finished: list[Finished]) -> None:
        """Keep records."""


async def run(settings: Settings, start: Start, tasks: Iterator[Task], sink: Sink) -> int:
    """Answer all tasks; return the exit code.

    It is FAILED if any image of this run failed. However the run ends, its engine has ended too,
    but for Ctrl-C and SIGTERM, which wait for nothing (`local_service.run`).
    """
    structured_logging.configure("warning", settings.log_format)
    engine = await start()
    failed = 0
    try:
        sink.begin(engine.identity)
        async with contextlib.aclosing(engine.answers(tasks)) as answers:
            async for finished in answers:
                failed += sum(each.failed for each in finished)
                sink.keep(finished)
    except Exception:  # re-raised; Ctrl-C and SIGTERM wait for nothing
        await engine.aclose()
        raise
    await engine.aclose()
    return ExitCode.FAILED if failed else ExitCode.OK
