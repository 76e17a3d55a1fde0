"""Fairness: what an interactive client waits alone, and beside another client's flood.

The interactive client sends `/classify` requests of one image as a Poisson process at a tenth of
the server's capacity, from one address. Then another address floods the server meanwhile: with 64
single images at a time, and with requests of 16 images. All of 127.0.0.0/8 is this machine, so the
addresses are real ones. Reported: p50 and p99 of the interactive client's answers in milliseconds,
their ratio to those alone, and its refusals. Run: python -m tests.bench.fairness [--seconds 15]
"""

import argparse
import asyncio
import json
import sys
import time
from typing import Any

from tests.bench.overload import FLAGS, closed_loop, open_loop
from tests.bench.subject import darkroom
from tests.bench.traffic import Connections, Reply, Request, percentile
from tests.pictures import jpeg

UNDER_WAY = 64
PER_BULK = 16
BOUNDARY = "boundary-of-the-form"


def form(n_images: int) -> Request:
    """Return one request with several images."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="{n}.jpg"\r\n'
        "Content-Type: image/jpeg\r\n\r\n".encode()
        + jpeg(n)
        + b"\r\n"
        for n in range(n_images)
    ]
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    return Request("/classify", body, content_type=f"multipart/form-data; boundary={BOUNDARY}")


def figures(replies: list[Reply]) -> dict[str, Any]:
    """Return the counts and the latencies, in milliseconds, of the interactive client."""
    good = [reply.seconds for reply in replies if reply.status == 200]
    return {
        "requests": len(replies),
        "not_200": len(replies) - len(good),
        "p50_ms": percentile(good, 0.5),
        "p99_ms": percentile(good, 0.99),
    }


async def flood(port: int, request: Request, under_way: int, stop: asyncio.Event) -> int:
    """Send requests of the other client until `stop` is set; return the number of answers with
    status 200.
    """
    connections, done = Connections(port, "127.0.0.2"), 0

    async def one() -> None:
        nonlocal done
        while not stop.is_set():
            reply = await connections.ask(request)
            done += reply.status == 200
            if reply.status != 200:
                await asyncio.sleep(reply.retry_after or 0.1)

    await asyncio.gather(*(one() for _ in range(under_way)))
    connections.close()
    return done


async def measure(port: int, seconds: float) -> dict[str, Any]:
    """Measure the interactive client alone, beside single images, and beside bulk."""
    interactive, request = Connections(port, "127.0.0.1"), Request("/classify", jpeg())
    capacity = await closed_loop(interactive, request, 5.0)
    rate = capacity / 10
    found: dict[str, Any] = {"capacity_per_second": round(capacity, 1)}
    found["alone"] = figures(await open_loop(interactive, request, rate, seconds))
    for name, each, under_way in (
        ("beside_flood", request, UNDER_WAY),
        ("beside_bulk", form(PER_BULK), UNDER_WAY // PER_BULK),
    ):
        stop, start = asyncio.Event(), time.monotonic()
        flooding = asyncio.create_task(flood(port, each, under_way, stop))
        await asyncio.sleep(1)
        replies = await open_loop(interactive, request, rate, seconds)
        stop.set()
        answered = await flooding
        found[name] = figures(replies)
        found[name]["flood_per_second"] = round(answered / (time.monotonic() - start), 1)
        for part in ("p50", "p99"):
            ratio = found[name][f"{part}_ms"] / found["alone"][f"{part}_ms"]
            found[name][f"{part}_ratio"] = round(ratio, 2)
        print(name, found[name], file=sys.stderr)
    interactive.close()
    return found


def main() -> None:
    """Start a server, load it, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each part")
    parser.add_argument("--front-ends", default="0")
    given = parser.parse_args()
    with darkroom(*FLAGS, "--front-ends", given.front_ends) as server:
        print(json.dumps(asyncio.run(measure(server.port, given.seconds))))


if __name__ == "__main__":
    main()
