"""A server under measurement: started, known to be ready, its CPU seconds by role."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.harness.processes import tree as family
from tests.ports import free_port

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Subject:
    """A ready server."""

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path
    seconds_to_ready: float

    def cpu_seconds(self) -> dict[int, tuple[str, float]]:
        """Return the role and the CPU seconds so far of each of the server's processes, by process
        id.
        """
        found = {}
        for pid in family(self.process.pid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seconds = (int(stat[11]) + int(stat[12])) / TICKS
                found[pid] = (words[-1] if "app.processes.member" in words else "server", seconds)
        return found

    def all_cpu_seconds(self) -> float:
        """Return the CPU seconds of all processes so far, with those of children that have ended
        and were waited for.
        """
        total = 0
        for pid in family(self.process.pid):
            with suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, stat[11:15]))
        return total / TICKS


@contextmanager
def started(
    command: Sequence[str],
    port: int,
    log: Path,
    ready: Callable[[int, Path], bool],
    limit: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Subject]:
    """Start a server in `folder`, wait until it is ready, and end it when the block ends.

    What failed carries the end of its log.
    """
    start = time.monotonic()
    given = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env={**given, **(environment or {})},
            cwd=folder,
        )
    try:
        while not ready(port, log):
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with exit code {process.returncode}")
            if time.monotonic() > start + limit:
                raise TimeoutError(f"the server was not ready after {limit:.0f} s")
            time.sleep(0.2)
        yield Subject(port, process, log, round(time.monotonic() - start, 1))
    except Exception as error:
        end = log.read_text(errors="replace")[-1200:]
        raise RuntimeError(f"{error}; its log ends: {end}") from error
    finally:
        _end(process)


@contextmanager
def darkroom(*flags: str, within: float = 180.0) -> Iterator[Subject]:
    """Serve this checkout with these flags on a free port; it must be ready `within` seconds."""
    port = free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), *flags]
    with (
        TemporaryDirectory() as folder,
        started(command, port, Path(folder) / "log", answers("/readyz"), within) as subject,
    ):
        yield subject


def answers(path: str) -> Callable[[int, Path], bool]:
    """Return a test of readiness: a GET of this path is answered with 200."""

    def ready(port: int, _log: Path) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    return ready


def says(words: str, times: int) -> Callable[[int, Path], bool]:
    """Return a test of readiness: the log contains these words `times` times, once for each
    process.
    """

    def ready(_port: int, log: Path) -> bool:
        return log.read_text(errors="replace").count(words) >= times

    return ready


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGINT; after ten seconds kill the process and every process that it started."""
    members = family(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for pid in members:  # by id, and only those that were its own when it was told to stop
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(10)
