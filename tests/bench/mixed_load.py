"""Interactive requests beside a job: latencies alone and beside, the job's rate alone and beside.

One server of this checkout, by default on the CPU, has a job of small photos in a folder.
Interactive traffic is one photo of 500 × 375 to /classify at fixed times, `--rate` a second,
whether or not earlier ones have been answered (an open loop, so a slow answer delays no other one).
`--rounds` times the
program measures, one after the other, `--seconds` each: the requests alone, the job alone, and
both. Only ratios within a run mean something on a busy machine: `p99_ratio` is the p99 of all
requests beside the job over the p99 of those alone, and `job_kept` the job's images a second beside
requests over those alone. Latencies are in milliseconds. A job counts its items in chunks of 64, so
measure long enough for many of them.
`left_over` is the share of the job's rate that the requests leave: 1 less the CPU seconds that
they took alone a second over the CPU seconds that the job took alone a second.
Run: python -m tests.bench.mixed_load [--rate 5] [--seconds 20] [--rounds 3] [--flags FLAGS]
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.bench.subject import Subject, darkroom
from tests.bench.traffic import Connections, Request, percentile
from tests.pictures import jpeg
from tests.server import NO_TLS, PATIENCE

FILES, ITEMS = 64, 400_000
"""Distinct photos, and items of each job, which is cancelled long before its end."""

SETTLE = 3.0
"""Seconds before each measurement: the server forgets who was there before."""


LOOK = 0.2
"""Seconds between two looks at a job that begins or ends."""


class Job:
    """A job that runs while the block does; `done` is the number of its finished items."""

    def __init__(self, client: httpx.AsyncClient, manifest: bytes) -> None:
        self._client, self._manifest = client, manifest
        self._path = ""

    async def __aenter__(self) -> "Job":
        kind = {"Content-Type": "application/x-ndjson"}
        url = "/jobs?operation=classify&top_k=1"
        reply = await self._client.post(url, content=self._manifest, headers=kind)
        reply.raise_for_status()
        self._path = reply.headers["Location"]
        await self._until(lambda state: state["items"]["done"] > 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.delete(self._path)
        await self._until(lambda state: state["state"] != "cancelling")
        await self._client.delete(self._path)

    async def done(self) -> int:
        return int((await self._state())["items"]["done"])

    async def rate(self, seconds: float) -> float:
        """Return the finished items a second over some seconds."""
        before, start = await self.done(), time.monotonic()
        await asyncio.sleep(seconds)
        return (await self.done() - before) / (time.monotonic() - start)

    async def _until(self, condition: Callable[[Any], bool]) -> None:
        for _ in range(int(PATIENCE / LOOK)):
            if condition(await self._state()):
                return
            await asyncio.sleep(LOOK)
        raise RuntimeError(f"job {self._path} does not go on")

    async def _state(self) -> Any:
        return (await self._client.get(self._path)).json()


async def requests(port: int, rate: float, seconds: float) -> list[float]:
    """Return the seconds of each request; raises RuntimeError where one is not answered."""
    connections, request = Connections(port), Request("/classify", jpeg(1, 500, 375), 60_000)

    async def one() -> float:
        start = time.monotonic()
        reply = await connections.ask(request)
        if reply.status != 200:
            raise RuntimeError(f"a request was answered with {reply.status}")
        return time.monotonic() - start

    start, tasks = time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(one()))
    found = await asyncio.gather(*tasks)
    connections.close()
    return list(found)


async def measure(subject: Subject, folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Measure the three situations in turn."""
    port = subject.port
    spent = {"requests": 0.0, "job": 0.0}
    lines = [json.dumps({"url": (folder / f"{n}.jpg").as_uri()}) for n in range(FILES)]
    manifest = "".join(f"{lines[n % FILES]}\n" for n in range(ITEMS)).encode()
    alone: list[float] = []
    beside: list[float] = []
    rates: dict[str, list[float]] = {"alone": [], "beside": []}
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, timeout=PATIENCE, verify=NO_TLS) as client:
        await requests(port, given.rate, SETTLE)
        for _ in range(given.rounds):
            await asyncio.sleep(SETTLE)
            before = subject.all_cpu_seconds()
            alone += await requests(port, given.rate, given.seconds)
            spent["requests"] += subject.all_cpu_seconds() - before
            async with Job(client, manifest) as job:
                await asyncio.sleep(SETTLE)
                before = subject.all_cpu_seconds()
                rates["alone"].append(await job.rate(given.seconds))
                spent["job"] += subject.all_cpu_seconds() - before
                both = asyncio.create_task(job.rate(given.seconds))
                beside += await requests(port, given.rate, given.seconds)
                rates["beside"].append(await both)
    left = 1 - spent["requests"] / spent["job"]
    return {**_summary(alone, beside, rates), "left_over": round(left, 2)}


def _summary(
    alone: list[float], beside: list[float], rates: dict[str, list[float]]
) -> dict[str, object]:
    mean = {name: sum(each) / len(each) for name, each in rates.items()}
    found = {"alone": alone, "beside": beside}
    shown = {
        name: {f"p{share}": round(percentile(each, share / 100) or 0.0, 1) for share in (50, 99)}
        for name, each in found.items()
    }
    return {
        "requests": len(alone),
        "requests_alone_ms": shown["alone"],
        "requests_beside_job_ms": shown["beside"],
        "p50_ratio": round(shown["beside"]["p50"] / shown["alone"]["p50"], 2),
        "p99_ratio": round(shown["beside"]["p99"] / shown["alone"]["p99"], 2),
        "job_images_per_s_alone": [round(each, 1) for each in rates["alone"]],
        "job_images_per_s_beside": [round(each, 1) for each in rates["beside"]],
        "job_kept": round(mean["beside"] / mean["alone"], 2),
    }


def main() -> None:
    """Start a server, measure, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=5.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="--gpus 0", help="further flags of the server")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name) / "photos"
        folder.mkdir()
        for number in range(FILES):
            (folder / f"{number}.jpg").write_bytes(jpeg(number, 200, 150))
        flags = ["--weights", "random", "--front-ends", "0", "--log-level", "warning"]
        flags += ["--data-folder", f"{name}/data", "--storage-allow", folder.as_uri()]
        with darkroom(*flags, *given.flags.split()) as subject:
            print(json.dumps(asyncio.run(measure(subject, folder, given))))


if __name__ == "__main__":
    main()
