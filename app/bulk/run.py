"""A run of a command: start an engine, answer the images that are left, keep their records."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TextIO

from tqdm import tqdm

from app.bulk import engine
from app.bulk.journal import Journal
from app.bulk.report import human_line
from app.bulk.walk import Source, Task
from app.bulk.work import Finished, Identity, Work
from app.system.terminal import has_colours, is_terminal
from models.exit_codes import ExitCode
from models.settings import Settings

GOES_ON = "interrupted; the same command goes on with the images that are left"
"""The hint of commands that write files."""

Keep = Callable[[list[Finished]], None]
"""Takes the records of a run, in order."""

Begin = Callable[[Identity], None]
"""Prepares for the records that a network makes."""


@dataclass(frozen=True, slots=True)
class Run:
    """The `work` on `total` images by `servers`, or by a server that the command starts."""

    settings: Settings
    work: Work
    servers: Sequence[str]
    total: int

    def answer(
        self, tasks: Iterator[Task], keep: Keep, hint: str = "", begin: Begin | None = None
    ) -> int:
        """Answer all tasks; return the exit code, FAILED if any image of this run failed.

        Ctrl-C and SIGTERM end this process at once: nothing is waited for, not for threads that
        read or wait for a server. After Ctrl-C the `hint` is printed, if given.
        """
        signal.signal(signal.SIGTERM, _terminated)
        try:
            return self._answer(tasks, keep, begin)
        except KeyboardInterrupt:
            if hint:
                os.write(sys.stderr.fileno(), f"\ndarkroom: {hint}\n".encode())
            os._exit(ExitCode.INTERRUPTED)
        except SystemExit:
            os._exit(ExitCode.TERMINATED)

    def complete(
        self,
        journal: Journal,
        tasks: Iterator[Task],
        earlier: int,
        failed: int,
        begin: Begin | None = None,
    ) -> str:
        """Append the records of tasks to a journal, behind a bar if standard error is a terminal.

        `earlier` images have results of an earlier run, of which `failed` have failed beside the
        failures of the journal. Return a line with images, failures, seconds and rate.
        """
        began, before = time.monotonic(), journal.done
        with tqdm(
            total=self.total,
            initial=earlier,
            unit=" images",
            disable=not is_terminal(sys.stderr),
            dynamic_ncols=True,
        ) as bar:

            def keep(finished: list[Finished]) -> None:
                n_failed = sum(each.failed for each in finished)
                journal.add(b"".join(each.line for each in finished), n_failed, len(finished))
                if n_failed:
                    bar.set_postfix_str(f"{failed + journal.failed} failed", refresh=False)
                bar.update(len(finished))

            if earlier < self.total:
                self.answer(tasks, keep, GOES_ON, begin)
        seconds, now = time.monotonic() - began, journal.done - before
        by_earlier = f", {earlier} of them by an earlier run" if earlier else ""
        return (
            f"{earlier + now} images{by_earlier}, {failed + journal.failed} failed; "
            f"{now} in {seconds:.1f} s, {now / max(seconds, 1e-9):.1f} images/s"
        )

    def _answer(self, tasks: Iterator[Task], keep: Keep, begin: Begin | None) -> int:
        """Answer all tasks. However that ends, the server that the command started has ended too.

        A warning about the labels, as that of the ten bundled classes, is in each record, and on
        standard error at the end.
        """
        started = engine.start(self.settings, self.work, self.servers, self.total)
        failed = 0
        try:
            if begin is not None and started.identity is not None:
                begin(started.identity)
            with contextlib.closing(started.answers(tasks)) as answers:
                for finished in answers:
                    failed += sum(each.failed for each in finished)
                    keep(finished)
        except BaseException:  # re-raised
            started.kill()
            raise
        started.close()
        if warning := (started.identity or {}).get("warning"):
            print(f"darkroom: warning: {warning}", file=sys.stderr)
        return ExitCode.FAILED if failed else ExitCode.OK


def tasks_of(sources: Iterator[Source]) -> Iterator[Task]:
    """Return the sources as tasks, numbered in their order."""
    return (Task(number, source) for number, source in enumerate(sources))


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.TERMINATED)


def printer(stream: TextIO, write: Callable[[str], object], *, as_json: bool) -> Keep:
    """Return the function that writes records to a stream: words on a terminal, JSON Lines
    elsewhere.

    `write` takes the text for `stream`; with `as_json` a terminal gets JSON too.
    """
    for_people, colours = is_terminal(stream) and not as_json, has_colours(stream)

    def keep(finished: list[Finished]) -> None:
        for each in finished:
            write(human_line(each.line, colours=colours) if for_people else each.line.decode())

    return keep
