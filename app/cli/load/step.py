"""One step of a measurement: a load that stays the same for some windows of time.

In a closed loop each of a number of connections sends its next request when the last one is
answered: the rate is what the server can do, and the step ends when its windows agree. In an open
loop requests leave at random times with a fixed mean rate (a Poisson process), whatever the server
does, and a request's time runs from when it should have left: a slow moment is paid by every
request that falls into it. All windows until the limit count then: windows of random arrivals agree
by chance, and would be the lucky ones.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from app.cli.load.client import Client, Origin, Reply
from app.cli.load.windows import AGREEING, NOT_SENT, Window, agree, keeps_up, merged, percentile

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

BUSY = 0.9
"""Cores of CPU time from which the client itself may be the limit: it has one thread."""

MOST_WAITING = 10_000
"""Requests of an open loop that may be unanswered; beyond it they are counted as not sent."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load: `connections` in a closed loop, or `rate` requests a second in an open one."""

    connections: int = 0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the warm-up, of a window, and of all windows of a step at most."""

    warm_up: float = 2.0
    window: float = 2.0
    limit: float = 20.0


class _Summary(msgspec.Struct):
    failed: int = 0


class _Problem(msgspec.Struct):
    code: str = ""


class _Answer(msgspec.Struct):
    summary: _Summary | None = None


_ANSWER = msgspec.json.Decoder(_Answer)
_PROBLEM = msgspec.json.Decoder(_Problem)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the maker of the fastest event loop that is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # Windows has none
        return asyncio.new_event_loop
    return new_event_loop


class Recorder:
    """The present window; requests add to it when they are sent and when they end.

    `waiting` is the number of requests that are sent and not answered yet.
    """

    def __init__(self, images: int) -> None:
        self._images, self.waiting = images, 0
        self._window, self._began = Window(), time.perf_counter()

    def send(self) -> None:
        """Count a request that is sent."""
        self._window.sent += 1
        self.waiting += 1

    def add(self, reply: Reply, seconds: float) -> None:
        """Count an answer: its images as good ones or as errors."""
        self._window.answered += 1
        failed = failures(reply, self._images)
        if failed:
            kind, count = failed
            self._window.errors[kind] += count
            if count == self._images:
                return
            self._window.images += self._images - count
        else:
            self._window.images += self._images
        self._window.times.append(seconds)

    def fail(self, kind: str) -> None:
        """Count a request without an answer."""
        self._window.errors[kind] += self._images

    def turn(self) -> Window:
        """Begin the next window and return the last one."""
        now, window = time.perf_counter(), self._window
        window.seconds = now - self._began
        self._window, self._began = Window(), now
        return window


def failures(reply: Reply, images: int) -> tuple[str, int] | None:
    """Return the kind of error in an answer and the number of images it concerns, or None."""
    if reply.status == 200:
        try:
            summary = _ANSWER.decode(reply.body).summary if reply.body[:1] == b"{" else None
        except msgspec.DecodeError:
            return "answer that is not JSON", images
        return ("failed image", summary.failed) if summary and summary.failed else None
    try:
        code = _PROBLEM.decode(reply.body).code
    except msgspec.DecodeError:
        code = ""
    return f"{reply.status} {code}".strip(), images


async def measured(
    origin: Origin, messages: Sequence[bytes], images: int, load: Load, timing: Timing
) -> dict[str, Any]:
    """Return the result of one step; each message asks for `images` images."""
    recorder, windows = Recorder(images), list[Window]()
    async with _under_load(origin, messages, load, recorder):
        await asyncio.sleep(timing.warm_up)
        recorder.turn()
        began, busy = time.perf_counter(), time.process_time()
        while time.perf_counter() - began < timing.limit and (load.rate or not agree(windows)):
            await asyncio.sleep(timing.window)
            windows.append(recorder.turn())
        cores = (time.process_time() - busy) / (time.perf_counter() - began)
        unanswered = recorder.waiting
    return _result(load, windows, unanswered, cores)


def _result(load: Load, windows: Sequence[Window], unanswered: int, cores: float) -> dict[str, Any]:
    stable = keeps_up(windows) if load.rate else agree(windows)
    whole = merged(windows[-AGREEING:] if stable and not load.rate else windows)
    whole.times.sort()
    milliseconds = {name: percentile(whole.times, share) for name, share in PERCENTILES.items()}
    milliseconds["max"] = whole.times[-1] if whole.times else None
    asked: dict[str, Any] = {"connections": load.connections}
    if load.rate:
        sent = round(whole.sent / whole.seconds, 1)
        asked = {"rate": load.rate, "sent_per_second": sent, "unanswered": unanswered}
    return {
        "loop": "open" if load.rate else "closed",
        **asked,
        "images_per_second": round(whole.rate, 1),
        "stable": stable,
        "windows": [round(each.rate, 1) for each in windows],
        "seconds": round(whole.seconds, 2),
        "images": whole.images,
        "errors": dict(whole.errors),
        "milliseconds": {
            name: None if value is None else round(value * 1e3, 2)
            for name, value in milliseconds.items()
        },
        "client_cores": round(cores, 3),
        "client_limited": cores > BUSY,
    }


@asynccontextmanager
async def _under_load(
    origin: Origin, messages: Sequence[bytes], load: Load, recorder: Recorder
) -> AsyncIterator[None]:
    client, turns = Client(origin), itertools.cycle(messages)
    if load.rate:
        tasks = [asyncio.create_task(_open_loop(client, turns, load.rate, recorder))]
    else:
        tasks = [
            asyncio.create_task(_closed_loop(client, turns, recorder))
            for _ in range(load.connections)
        ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client.close()


async def _closed_loop(client: Client, turns: Iterator[bytes], recorder: Recorder) -> None:
    while True:
        if not await _one(client, next(turns), recorder, time.perf_counter()):
            await asyncio.sleep(0.05)  # a server that is down must not be asked in a busy loop


async def _open_loop(
    client: Client, turns: Iterator[bytes], rate: float, recorder: Recorder
) -> None:
    random_, due, waiting = random.Random(1), time.perf_counter(), set[asyncio.Task[bool]]()  # noqa: S311
    try:
        while True:
            due += random_.expovariate(rate)
            if (ahead := due - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            if len(waiting) >= MOST_WAITING:
                recorder.fail(NOT_SENT)
                await asyncio.sleep(0)
                continue
            task = asyncio.create_task(_one(client, next(turns), recorder, due))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _one(client: Client, message: bytes, recorder: Recorder, due: float) -> bool:
    """Send one request and record its end; return whether there was an answer."""
    recorder.send()
    try:
        reply = await client.ask(message)
    except OSError as error:
        recorder.fail(f"no answer: {error.strerror or error}")
        return False
    finally:
        recorder.waiting -= 1
    recorder.add(reply, time.perf_counter() - due)
    return True
