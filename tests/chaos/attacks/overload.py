"""Open-loop arrivals at 1, 2, 5 and 20 times the capacity.

Promise: goodput is at least 0.95 of its peak at every load, refusals come within 50 ms, accepted
requests that die at their deadline are below 1 %, and an ordinary request is answered 2 s after.
"""

import asyncio
import time
from dataclasses import replace

from tests.chaos.attacks.impatient import Tally, capacity, one, slow_request
from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.pictures import jpeg

LOADS = (1, 2, 5, 20)
_SECONDS = 15.0
_DEADLINE_MS = 5000
_INTERACTIVE = "127.0.0.77"
"""The address of the client beside bulk; all of 127.0.0.0/8 is this machine."""


async def _arrivals(target: Target, request: bytes, rate: float, tally: Tally) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    tasks = []
    for number in range(int(rate * _SECONDS)):
        await asyncio.sleep(max(0.0, started + number / rate - loop.time()))
        tasks.append(asyncio.create_task(one(target, request, tally)))
    await asyncio.gather(*tasks)


def overload(target: Target) -> Steps:
    """Send slow work at 1, 2, 5 and 20 times the rate it can be done at."""
    request = slow_request(1, f"X-Deadline-Ms: {_DEADLINE_MS}\r\n")
    full = capacity(target, request)
    yield None
    yield Finding("capacity_per_s", full)
    goodputs = []
    for load in LOADS:
        tally = Tally()
        started, spent = time.monotonic(), time.process_time()
        asyncio.run(_arrivals(target, request, load * full, tally))
        took, spent = time.monotonic() - started, time.process_time() - spent
        good = tally.statuses.get("200", 0)
        refused = tally.statuses.get("503", 0) + tally.statuses.get("429", 0)
        accepted = sum(tally.statuses.values()) - refused
        goodputs.append(good / took)
        yield Finding(f"goodput_at_{load}_per_s", goodputs[-1])
        yield Finding(f"client_cores_at_{load}", spent / took)
        yield Finding(f"refused_at_{load}_p99_s", tally.percentile(0.99), most=0.05)
        yield Finding(f"died_at_{load}_share", (accepted - good) / max(1, accepted), most=0.01)
        yield Finding(f"refused_at_{load}", refused)
        started = time.monotonic()
        found = ask(target, post("/classify", jpeg(5), "image/jpeg"), 30.0)
        took = time.monotonic() - started if found.status == 200 else 30.0
        yield Finding(f"recovery_after_{load}_s", took, most=2.0)
        time.sleep(1.0)
    for load, goodput in zip(LOADS, goodputs, strict=True):
        yield Finding(f"goodput_at_{load}_of_peak", goodput / max(goodputs), least=0.95)


def bulk(target: Target) -> Steps:
    """Send forms of 32 photos on four connections beside one interactive client."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
    form = b"".join(head + jpeg(n, 640, 480) + b"\r\n" for n in range(32)) + b"--b--\r\n"
    bulky = post("/filter?name=gaussian_blur&sigma=8", form, "multipart/form-data; boundary=b")
    single = post("/classify", jpeg(7), "image/jpeg")
    other = replace(target, source=_INTERACTIVE)
    alone = sorted(_latencies(other, single, 60))
    yield None
    tally = Tally()

    async def beside() -> list[float]:
        end = time.monotonic() + 25

        async def client() -> None:
            while time.monotonic() < end:
                if await one(target, bulky, tally) != "200":
                    await asyncio.sleep(1)

        clients = [asyncio.create_task(client()) for _ in range(4)]
        await asyncio.sleep(2)
        found = await asyncio.to_thread(_latencies, other, single, 60)
        await asyncio.gather(*clients)
        return found

    asked = asyncio.run(beside())
    busy = sorted(asked)
    yield Finding("p99_alone_s", alone[-1])
    yield Finding("p99_beside_bulk_s", busy[-1])
    yield Finding("slowest_beside_bulk_is_number", 1 + asked.index(busy[-1]))
    yield Finding("second_slowest_beside_bulk_s", busy[-2])
    yield Finding("p50_alone_s", alone[len(alone) // 2])
    yield Finding("p50_beside_bulk_s", busy[len(busy) // 2])
    yield Finding("p99_ratio", busy[-1] / alone[-1], most=2.0)
    yield Finding("bulk_answers", tally.statuses.get("200", 0), least=1)


def _latencies(target: Target, request: bytes, count: int) -> list[float]:
    """Return the seconds of requests a third of a second apart; a refused one counts as 30 s."""
    found = []
    for _ in range(count):
        outcome = ask(target, request, 30.0)
        found.append(outcome.seconds if outcome.status == 200 else 30.0)
        time.sleep(0.3)
    return found
