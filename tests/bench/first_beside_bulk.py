"""What the first request waits for beside a bulk client: images of that client, and milliseconds.

One address keeps 64 slow images under way. Every 12 seconds, after which the server treats the
flood as alone again, another address asks for one quick image. Reported for each such request: how
many images of the flood were answered between asking and the answer, and how long it took. The
count hardly depends on other programs, the time does.
Run: python -m tests.bench.first_beside_bulk [--times 10] [--checkout FOLDER]
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.subject import answers, started
from tests.bench.traffic import Connections, Request
from tests.pictures import jpeg
from tests.ports import free_port

UNDER_WAY = 64
APART = 12.0
"""Seconds between two requests, more than the server remembers that it was shared."""

DEADLINE_MS = 120_000


class Flood:
    """One client with many slow images under way; `answered` counts them."""

    def __init__(self, port: int) -> None:
        self._connections = Connections(port, "127.0.0.2")
        self._stop = False
        self.answered = 0

    async def run(self) -> None:
        """Ask until `stop`."""
        request = Request("/filter?name=nl_means", jpeg(1, 120, 90), DEADLINE_MS)

        async def one() -> None:
            while not self._stop:
                reply = await self._connections.ask(request)
                self.answered += reply.status == 200
                if reply.status != 200:
                    await asyncio.sleep(0.2)

        await asyncio.gather(*(one() for _ in range(UNDER_WAY)))
        self._connections.close()

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stop = True


async def measure(port: int, times: int) -> dict[str, object]:
    """Ask `times` times, with the pause before each."""
    single, request = Connections(port), Request("/filter?name=invert", jpeg(2), DEADLINE_MS)
    await single.ask(request)
    flood = Flood(port)
    flooding = asyncio.create_task(flood.run())
    images, milliseconds = [], []
    for _ in range(times):
        await asyncio.sleep(APART)
        before, start = flood.answered, time.monotonic()
        reply = await single.ask(request)
        if reply.status != 200:
            raise RuntimeError(f"the single request was answered with {reply.status}")
        images.append(flood.answered - before)
        milliseconds.append(round((time.monotonic() - start) * 1e3))
    flood.stop()
    await flooding
    single.close()
    return {
        "images_before": images,
        "median_images_before": statistics.median(images),
        "milliseconds": milliseconds,
        "flood_answered": flood.answered,
    }


def main() -> None:
    """Start a server, ask it beside a flood, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--checkout", type=Path, help="measure the server of another checkout")
    given = parser.parse_args()
    port = free_port()
    python = str(given.checkout / ".venv/bin/python") if given.checkout else sys.executable
    command = [python, "-m", "app.cli", "serve", "--port", str(port), "--weights", "random"]
    command += ["--gpus", "0", "--front-ends", "0", "--log-level", "warning"]
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with started(command, port, log, answers("/readyz"), 180, folder=given.checkout):
            print(json.dumps(asyncio.run(measure(port, given.times))))


if __name__ == "__main__":
    main()
