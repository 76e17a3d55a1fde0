"""A real server of this checkout, or of another one by its own interpreter."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.harness.attack import Attack, Target
from tests.chaos.harness.http import ask
from tests.edge import behind
from tests.ports import free_port

HERE = Path(__file__).parents[3]

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with Darkroom's code, and its own environment if it has one.

    Its server runs on `cpus`, where they are given, and on all otherwise. It stands behind `proxy`,
    a name of `tests/edge.py`, where that is given.
    """

    folder: Path = HERE
    cpus: frozenset[int] = frozenset()
    proxy: str | None = None

    @property
    def python(self) -> str:
        """Return the interpreter that has this checkout's packages."""
        own = self.folder / ".venv" / "bin" / "python"
        return str(own) if own.exists() and self.folder != HERE else sys.executable

    def settings(self) -> frozenset[str]:
        """Return the names of all settings of the checkout, so that older code is not given newer
        flags.
        """
        code = (
            "import json\nfrom models.settings import Settings\n"
            "print(json.dumps(list(Settings.model_fields)))"
        )
        found = subprocess.run(
            [self.python, "-c", code],
            cwd=self.folder,
            env=_environment(self.folder),
            capture_output=True,
            check=True,
        )
        return frozenset(json.loads(found.stdout))

    def commit(self) -> str:
        """Return the commit that is checked out, with a plus where files were changed."""
        words = ["git", "-C", str(self.folder), "describe", "--always", "--dirty=+"]
        return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "unknown"


@contextmanager
def under_attack(
    checkout: Checkout, attack: Attack, front_ends: int, source: str
) -> Iterator[tuple[Target, "subprocess.Popen[bytes]"]]:
    """Start a server with the attack's settings; end it by SIGINT, at last by SIGKILL."""
    with TemporaryDirectory(prefix="attack-") as folder:
        port = str(free_port())
        named = (flag.replace("{folder}", folder) for flag in attack.flags)
        flags = tuple(flag.replace("{port}", port) for flag in named)
        if checkout.proxy:
            flags += ("--trusted-proxies", "127.0.0.1")
        process, target = _started(checkout, replace(attack, flags=flags), front_ends, source)
        target = replace(target, folder=folder)
        try:
            if not checkout.proxy:
                yield target, process
                return
            at, own = free_port(), Path(folder) / checkout.proxy
            own.mkdir()
            with behind(checkout.proxy, own, at, target.port):
                yield replace(target, port=at), process
        finally:
            _end(process)


def _started(
    checkout: Checkout, attack: Attack, front_ends: int, source: str
) -> "tuple[subprocess.Popen[bytes], Target]":
    """Start a server and wait until it is ready; repeat where another program took the free port
    before it.
    """
    settings = checkout.settings()
    for tries_left in reversed(range(_TRIES)):
        process, target = _start(checkout, attack, front_ends, source, settings)
        try:
            _wait_until_ready(target, process)
        except BaseException as error:
            _end(process)
            if not tries_left or not isinstance(error, RuntimeError):
                raise
        else:
            return process, target
    raise AssertionError("unreachable")


def _start(
    checkout: Checkout, attack: Attack, front_ends: int, source: str, settings: frozenset[str]
) -> "tuple[subprocess.Popen[bytes], Target]":
    port = free_port()
    flags = _known(attack.flags, settings)
    command = [checkout.python, "-m", "app.cli", "serve", "--port", str(port)]
    command += ["--weights", "random", "--log-level", "error", "--front-ends", str(front_ends)]

    def limit() -> None:
        if checkout.cpus:
            os.sched_setaffinity(0, checkout.cpus)
        if attack.descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (attack.descriptors, attack.descriptors))

    process = subprocess.Popen(
        [*command, *flags],
        cwd=checkout.folder,
        env=_environment(checkout.folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=limit,  # noqa: PLW1509 (this process has one thread here)
    )
    return process, Target(port, process.pid, source)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment without settings, and for another checkout without this one's
    packages.
    """
    left_out = ("DARKROOM_",) if folder == HERE else ("DARKROOM_", "PYTHONPATH")
    return {k: v for k, v in os.environ.items() if not k.startswith(left_out)}


def _known(flags: Sequence[str], settings: frozenset[str]) -> list[str]:
    """Return the pairs of flag and value whose setting the checkout has."""
    pairs = zip(flags[::2], flags[1::2], strict=True)
    return [
        word
        for flag, value in pairs
        if flag.removeprefix("--").replace("-", "_") in settings
        for word in (flag, value)
    ]


def _wait_until_ready(target: Target, process: "subprocess.Popen[bytes]") -> None:
    request = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        if ask(replace(target, source="127.0.0.1"), request, 5).status == 200:
            return
        time.sleep(0.1)
    raise TimeoutError("the server was not ready within 120 s")


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
