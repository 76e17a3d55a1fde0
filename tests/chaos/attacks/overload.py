"""Open-loop arrivals at 1, 2, 5 and 20 times the capacity, in four rounds.

Promise: goodput is at least 0.9 of its peak at every load, refusals come within 100 ms, accepted
requests that die at their deadline are below 1 %, and an ordinary request is answered 2 s after.

Goodput is the answers with status 200 in a second of a window in which the load is applied: from
`_BEGIN` on, when answers come at the rate of arrivals, to the last arrival. No server answers more
than is sent, so at the capacity itself the peak counts as no more than that rate. Every second
round has the loads in reverse order, so a machine that becomes slower or faster meanwhile changes
all loads alike. A window lasts 8 s: the answers in progress at its two ends make the count
uncertain by a few, which are a small share of the answers of 8 s. There are no neighbours: they ask
again when they are answered, so they take more of the server at the smaller loads. Beside each load
stand the cores that the server used in these seconds, and those that the clients took from it if
they share its cores. Nothing is corrected for them: they tell a server that left cores idle from
one whose cores were slower.
"""

import asyncio
import itertools
import time
from dataclasses import dataclass, field, replace

from tests.chaos.attacks.impatient import Tally, capacity, one, slow_request
from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.chaos.harness.processes import usage
from tests.pictures import jpeg

LOADS = (1, 2, 5, 20)
_ROUNDS = (LOADS, LOADS[::-1], LOADS, LOADS[::-1])
_SECONDS, _BEGIN = 9.0, 1.0
"""Seconds of arrivals in each round, and those of them before the window."""
_DEADLINE_MS = 5000
_INTERACTIVE = "127.0.0.77"
"""The address of the client beside bulk; all of 127.0.0.0/8 is this machine."""


@dataclass(slots=True)
class _Load:
    """What all rounds of one load gave; `good` answers came in `seconds` of windows."""

    tally: Tally = field(default_factory=Tally)
    good: int = 0
    seconds: float = 0.0
    client_seconds: float = 0.0
    server_seconds: float = 0.0
    """CPU seconds of the clients and of the server while arrivals last, in parts of the windows."""
    recovery: float = 0.0

    @property
    def goodput(self) -> float:
        """Return the good answers per second."""
        return self.good / self.seconds


async def _arrivals(target: Target, request: bytes, rate: float, load: _Load) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    good: list[float] = []

    async def client() -> None:
        if await one(target, request, load.tally) == "200":
            good.append(loop.time() - started)

    tasks, before, cpu = [], time.process_time(), usage(target.pid).cpu
    for number in range(int(rate * _SECONDS)):
        await asyncio.sleep(max(0.0, started + number / rate - loop.time()))
        tasks.append(asyncio.create_task(client()))
    await asyncio.sleep(max(0.0, started + _SECONDS - loop.time()))
    part = 1 - _BEGIN / _SECONDS
    load.client_seconds += (time.process_time() - before) * part
    load.server_seconds += (usage(target.pid).cpu - cpu) * part
    await asyncio.gather(*tasks)
    load.good += sum(_BEGIN <= at < _SECONDS for at in good)
    load.seconds += _SECONDS - _BEGIN


def _recovery(target: Target) -> float:
    """Return the seconds of an ordinary request after the load; 30 if it is not answered."""
    started = time.monotonic()
    found = ask(target, post("/classify", jpeg(5), "image/jpeg"), 30.0)
    return time.monotonic() - started if found.status == 200 else 30.0


def overload(target: Target) -> Steps:
    """Send slow work at 1, 2, 5 and 20 times the rate it can be done at."""
    request = slow_request(1, f"X-Deadline-Ms: {_DEADLINE_MS}\r\n")
    full = capacity(target, request)
    yield None
    yield Finding("capacity_per_s", full)
    loads = {factor: _Load() for factor in LOADS}
    for factor in itertools.chain(*_ROUNDS):
        load = loads[factor]
        asyncio.run(_arrivals(target, request, factor * full, load))
        load.recovery = max(load.recovery, _recovery(target))
        time.sleep(1.0)
    peak = max(load.goodput for load in loads.values())
    for factor, load in loads.items():
        statuses = load.tally.statuses
        refused = statuses.get("503", 0) + statuses.get("429", 0)
        accepted = sum(statuses.values()) - refused
        died = (accepted - statuses.get("200", 0)) / max(1, accepted)
        yield Finding(f"goodput_at_{factor}_per_s", load.goodput)
        yield Finding(f"client_cores_at_{factor}", load.client_seconds / load.seconds)
        yield Finding(f"server_cores_at_{factor}", load.server_seconds / load.seconds)
        yield Finding(f"refused_at_{factor}_p99_s", load.tally.percentile(0.99), most=0.1)
        yield Finding(f"died_at_{factor}_share", died, most=0.01)
        yield Finding(f"refused_at_{factor}", refused)
        yield Finding(f"recovery_after_{factor}_s", load.recovery, most=2.0)
        possible = min(peak, factor * full)
        yield Finding(f"goodput_at_{factor}_of_peak", load.goodput / possible, least=0.9)


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
