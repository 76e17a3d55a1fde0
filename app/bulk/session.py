"""One run of a bulk command: start an engine, answer the images that are left, keep records."""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from app.bulk.engines.engine import Engine, Finished, Task
from app.bulk.report import with_warning
from app.telemetry import logs
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
    but for Ctrl-C and SIGTERM, which wait for nothing (`local_service.run`). A warning about the
    labels, as that of the ten bundled classes, is in each record, and on standard error at the end.
    """
    logs.configure("warning", settings.log_format)
    engine = await start()
    failed = 0
    try:
        sink.begin(engine.identity)
        warning = str((engine.identity or {}).get("warning", ""))
        async with contextlib.aclosing(engine.answers(tasks)) as answers:
            async for finished in answers:
                failed += sum(each.failed for each in finished)
                if warning:
                    finished = [_warned(each, warning) for each in finished]
                sink.keep(finished)
    except Exception:  # re-raised; Ctrl-C and SIGTERM wait for nothing
        await engine.aclose()
        raise
    await engine.aclose()
    if warning:
        print(f"darkroom: warning: {warning}", file=sys.stderr)
    return ExitCode.FAILED if failed else ExitCode.OK


def _warned(finished: Finished, warning: str) -> Finished:
    if finished.failed:
        return finished
    return replace(finished, line=with_warning(finished.line, warning))
