"""A server of this machine for the time of a measurement."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from app.cli.commands.health import ask
from app.cli.load.client import Origin
from app.cli.load.messages import requests
from app.cli.load.step import Load, Timing, measured
from models.settings import PREFIX

ROOT = str(Path(__file__).resolve().parents[3])
"""The folder that this package was imported from."""

PROGRAM = f"""\
import ctypes, sys
if sys.platform == "linux":  # PR_SET_PDEATHSIG: SIGTERM, if the measuring process is killed
    ctypes.CDLL(None).prctl(1, 15)
sys.path.insert(0, {ROOT!r})
from app.cli.script import main
sys.exit(main(sys.argv[1:]))
"""

STOP = 20.0
"""Seconds from SIGINT to SIGKILL."""

TIMING = Timing(warm_up=1.0, window=1.0, limit=6.0)

OWN = (
    *("api_keys_file", "rate_limit", "tls_certificate", "tls_key", "metrics_port", "grpc_port"),
    "settings_file",
)
"""Settings of the environment that a server for measurements does not take over: they would refuse
the load, take a port of the real server, or set what is to be measured."""


async def rate(
    flags: Mapping[str, str], images: Sequence[bytes], connections: int, patience: float
) -> tuple[float, bool] | None:
    """Return the images per second that a server with these flags classifies.

    With it comes whether the client was the limit. None if the server is not ready after `patience`
    seconds; the first start on a GPU may take longer than others, because it compiles the kernels.
    """
    async with _served(flags, patience) as url:
        if url is None:
            return None
        origin = Origin.of(url)
        messages = requests(origin, "/classify", images, 1, {"Accept": "application/json"})
        found = await measured(origin, messages, 1, Load(connections=connections), TIMING)
        return (found["images_per_second"], found["client_limited"]) if found["images"] else None


@asynccontextmanager
async def _served(flags: Mapping[str, str], patience: float) -> AsyncIterator[str | None]:
    """Yield the URL of a server that is ready, or None; the server ends with the block."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    fixed = ["--host=127.0.0.1", "--port=0", "--log-format=json", "--log-level=info", "--grace=0"]
    own = {PREFIX + name.upper() for name in OWN}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        PROGRAM,
        "serve",
        *words,
        *fixed,
        "--spare-workers=0",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name.upper() not in own},
        start_new_session=True,
    )
    assert process.stderr is not None
    draining = None
    try:
        url = await _until_ready(process.stderr, patience)
        draining = asyncio.create_task(_drain(process.stderr))
        yield url
    finally:
        await _end(process)
        if draining is not None:
            await draining


async def _until_ready(log: asyncio.StreamReader, patience: float) -> str | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while line := await _line(log):
                message = _message(line)
                if message.startswith("listening on "):
                    url = message.removeprefix("listening on ").split()[0]
                    while not (await asyncio.to_thread(ask, url, 5.0))["ready"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                    return url
    return None


async def _line(log: asyncio.StreamReader) -> bytes:
    """Return the next line, or an empty one at the end; lines of over 64 KiB are skipped."""
    while True:
        try:
            return await log.readline()
        except ValueError:  # such a line is a long traceback, not the one that is waited for
            continue


def _message(line: bytes) -> str:
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):  # a line of a library
        return ""


async def _drain(log: asyncio.StreamReader) -> None:
    """Read the log to its end, or the server would wait for room in the pipe."""
    while await log.read(65536):
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop the server; kill it with its own processes after `STOP`, or if this is cancelled."""
    try:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its session has no other processes
    await process.wait()
