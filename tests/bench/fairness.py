"""Fairness: what an interactive client waits alone, and beside another client's flood or a job.

The interactive client sends `/classify` requests of one image as a Poisson process at a tenth of
the server's capacity, from one address. Then another address floods the server meanwhile: with 64
single images at a time, and with requests of 16 images; at last a job of small local photos runs.
All of 127.0.0.0/8 is this machine, so the addresses are real ones. Reported: p50 and p99 of the
interactive client's answers in milliseconds, their ratio to those alone, and its refusals.
Run: python -m tests.bench.fairness [--seconds 15]
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.bench.load import Connections, Reply, closed_loop, forms, open_loop, percentile, raw_post
from tests.bench.report import report
from tests.bench.subject import darkroom
from tests.pictures import jpeg

FLAGS = ("--weights", "random", "--gpus", "0", "--log-level", "warning")
UNDER_WAY = 64
PER_BULK = 16
ITEMS = 400_000
"""Items of the job, which is cancelled long before its end."""


def figures(replies: list[Reply]) -> dict[str, Any]:
    """Return the counts and the latencies, in milliseconds, of the interactive client."""
    good = [reply.seconds for reply in replies if reply.status == 200]
    return {
        "requests": len(replies),
        "not_200": len(replies) - len(good),
        "p50_ms": percentile(good, 0.5),
        "p99_ms": percentile(good, 0.99),
    }


async def flood(port: int, request: bytes, under_way: int, stop: asyncio.Event) -> float:
    """Send requests of the other client until `stop` is set; return good answers a second."""
    connections, done, start = Connections(port, "127.0.0.2"), 0, time.monotonic()

    async def one() -> None:
        nonlocal done
        while not stop.is_set():
            reply = await connections.ask(request)
            done += reply.status == 200
            if reply.status != 200:
                await asyncio.sleep(reply.retry_after or 0.1)

    await asyncio.gather(*(one() for _ in range(under_way)))
    connections.close()
    return done / (time.monotonic() - start)


async def job(port: int, photo: Path, stop: asyncio.Event) -> float:
    """Run a job until `stop` is set, and cancel it; return its finished items a second."""
    line = json.dumps({"url": photo.as_uri()}) + "\n"
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        kind = {"Content-Type": "application/x-ndjson"}
        url = "/jobs?operation=classify&top_k=1"
        made = await client.post(url, content=(line * ITEMS).encode(), headers=kind)
        path, start = made.raise_for_status().headers["Location"], time.monotonic()
        await stop.wait()
        done = (await client.post(f"{path}/cancel")).json()["items"]["done"]
    return float(done) / (time.monotonic() - start)


async def measure(port: int, photo: Path, seconds: float) -> dict[str, Any]:
    """Measure the interactive client alone, beside single images, beside bulk, beside a job."""
    interactive, request = Connections(port), raw_post("/classify", jpeg())
    answers = await closed_loop(interactive, [request], 16, 5.0)
    capacity = sum(each.status == 200 for each in answers) / 5
    found: dict[str, Any] = {"capacity_per_second": round(capacity, 1)}
    found["alone"] = figures(await open_loop(interactive, [request], capacity / 10, seconds))
    stop = asyncio.Event()
    (bulk,) = forms("/classify", [jpeg(n) for n in range(PER_BULK)], PER_BULK)
    beside: dict[str, Awaitable[float]] = {
        "flood": flood(port, request, UNDER_WAY, stop),
        "bulk": flood(port, bulk, UNDER_WAY // PER_BULK, stop),
        "job": job(port, photo, stop),
    }
    for name, work in beside.items():
        stop.clear()
        working = asyncio.ensure_future(work)
        await asyncio.sleep(1)
        row = figures(await open_loop(interactive, [request], capacity / 10, seconds))
        stop.set()
        row["other_per_second"] = round(await working, 1)
        for part in ("p50", "p99"):
            row[f"{part}_ratio"] = round(row[f"{part}_ms"] / found["alone"][f"{part}_ms"], 2)
        found[f"beside_{name}"] = row
        print(name, row, file=sys.stderr)
    interactive.close()
    return found


def main() -> None:
    """Start a server, load it, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each part")
    parser.add_argument("--front-ends", default="0")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        (photo := Path(name) / "photos/1.jpg").parent.mkdir()
        photo.write_bytes(jpeg(1, 200, 150))
        flags = ("--data-folder", f"{name}/data", "--storage-allow", photo.parent.as_uri())
        with darkroom(*FLAGS, *flags, "--front-ends", given.front_ends) as server:
            found = asyncio.run(measure(server.port, photo, given.seconds))
    report("fairness", **found)


if __name__ == "__main__":
    main()
