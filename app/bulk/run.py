"""One run of a command: start an engine, answer the images that are left, keep their records."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType, TracebackType
from typing import Protocol, TextIO

import msgspec
from tqdm import tqdm

from app.bulk import engine
from app.bulk.outputs.journal import Journal, Origin
from app.bulk.report import human_line
from app.bulk.sources.source import Source
from app.bulk.work import Finished, Task, Work
from app.system.terminal import has_colours, is_terminal
from models.exit_codes import ExitCode
from models.settings import Settings

GOES_ON = "interrupted; the same command goes on with the images that are left"
"""The hint of commands that write files."""


class Sink(Protocol):
    """Takes the records of a run, in order."""

    def begin(self, identity: Mapping[str, object] | None) -> None:
        """Prepare for records that the network `identity` makes."""

    def keep(self, finished: list[Finished]) -> None:
        """Keep records."""


@dataclass(frozen=True, slots=True)
class Run:
    """The `work` on `total` images by `servers`, or by a server that the command starts."""

    settings: Settings
    work: Work
    servers: Sequence[str]
    total: int

    def answer(self, tasks: Iterator[Task], sink: Sink, hint: str = "") -> int:
        """Answer all tasks; return the exit code, FAILED if any image of this run failed.

        Ctrl-C and SIGTERM end this process at once: nothing is waited for, not for threads that
        read or wait for a server. After Ctrl-C the `hint` is printed, if there is one.
        """
        signal.signal(signal.SIGTERM, _terminated)
        try:
            return self._answer(tasks, sink)
        except KeyboardInterrupt:
            if hint:
                os.write(sys.stderr.fileno(), f"\ndarkroom: {hint}\n".encode())
            os._exit(ExitCode.INTERRUPTED)
        except SystemExit:
            os._exit(ExitCode.TERMINATED)

    def _answer(self, tasks: Iterator[Task], sink: Sink) -> int:
        """Answer all tasks. However that ends, the server that the command started has ended too.

        A warning about the labels, as that of the ten bundled classes, is in each record, and on
        standard error at the end.
        """
        started = engine.start(self.settings, self.work, self.servers, self.total)
        failed = 0
        try:
            sink.begin(started.identity)
            warning = str((started.identity or {}).get("warning", ""))
            with contextlib.closing(started.answers(tasks)) as answers:
                for finished in answers:
                    failed += sum(each.failed for each in finished)
                    if warning:
                        finished = [_warned(each, warning) for each in finished]
                    sink.keep(finished)
        except BaseException:  # re-raised
            started.kill()
            raise
        started.close()
        if warning:
            print(f"darkroom: warning: {warning}", file=sys.stderr)
        return ExitCode.FAILED if failed else ExitCode.OK


def tasks_of(sources: Iterator[Source]) -> Iterator[Task]:
    """Return the sources as tasks, numbered in their order."""
    return (Task(number, source) for number, source in enumerate(sources))


def _warned(finished: Finished, warning: str) -> Finished:
    if finished.failed:
        return finished
    member = b',"warning":' + msgspec.json.encode(warning) + b"}\n"
    return replace(finished, line=finished.line.removesuffix(b"}\n") + member)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(ExitCode.TERMINATED)


class RecordPrinter:
    """Sink that writes records to a stream: for people on a terminal, else JSON Lines."""

    def __init__(self, stream: TextIO, write: Callable[[str], object], *, as_json: bool) -> None:
        """`write` takes the text for `stream`; with `as_json` a terminal gets JSON too."""
        self._write = write
        self._for_people = is_terminal(stream) and not as_json
        self._colours = has_colours(stream)

    def begin(self, _identity: Mapping[str, object] | None) -> None:
        """Do nothing: printed records are never continued."""

    def keep(self, finished: list[Finished]) -> None:
        """Write records."""
        for each in finished:
            text = each.line.decode()
            if self._for_people:
                text = human_line(each.line, colours=self._colours)
            self._write(text)


class JournalSink:
    """Sink that appends records to a journal, and counts them.

    The records replace those of failures in the finished file that `mended` describes, if it is
    given.
    """

    def __init__(
        self, journal: Journal, progress: "Progress", mended: Origin | None = None
    ) -> None:
        self._journal, self._progress, self._mended = journal, progress, mended

    def begin(self, identity: Mapping[str, object] | None) -> None:
        """Compare the network with that of earlier records."""
        if identity is not None:
            if self._mended is not None:
                self._mended.check_network(identity)
            self._journal.begin(identity)

    def keep(self, finished: list[Finished]) -> None:
        """Append records."""
        failed = sum(each.failed for each in finished)
        self._journal.add(b"".join(each.line for each in finished), failed, len(finished))
        self._progress.add(failed, len(finished))


class Progress:
    """A bar with rate, failures and time left if standard error is a terminal.

    `total` images are wanted; `earlier` of them are the results of an earlier run.
    """

    def __init__(self, total: int, earlier: int, failed: int) -> None:
        self._total, self._earlier, self._failed = total, earlier, failed
        self._done, self._began = earlier, time.monotonic()

    def __enter__(self) -> "Progress":
        self._bar = tqdm(
            total=self._total,
            initial=self._earlier,
            unit=" images",
            disable=not is_terminal(sys.stderr),
            dynamic_ncols=True,
        )
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._bar.close()

    def add(self, failed: int, count: int = 1) -> None:
        """Count images, of which `failed` have failed."""
        self._done += count
        if failed:
            self._failed += failed
            self._bar.set_postfix_str(f"{self._failed} failed", refresh=False)
        self._bar.update(count)

    def summary(self) -> str:
        """Return one line: images, failures, those of an earlier run, seconds and rate."""
        seconds, now = time.monotonic() - self._began, self._done - self._earlier
        earlier = f", {self._earlier} of them by an earlier run" if self._earlier else ""
        return (
            f"{self._done} images{earlier}, {self._failed} failed; "
            f"{now} in {seconds:.1f} s, {now / max(seconds, 1e-9):.1f} images/s"
        )
