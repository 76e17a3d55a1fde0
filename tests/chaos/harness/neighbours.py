"""Fifteen good clients: ordinary photos, classified and filtered, beside an attack.

A client that is refused with 503 or 429 waits as `Retry-After` says and asks again, as a good
client does; its time counts from its first try.
"""

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from tests.chaos.harness.attack import NEIGHBOURS, Target
from tests.chaos.harness.http import answer, connect, post
from tests.pictures import jpeg

WITHIN = 15.0
"""Seconds within which each request of a good client must be answered."""

_PATIENCE = 60.0
_PAUSE = 1.0
_RETRY = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Neighbours:
    """What the good clients saw; `slowest` in seconds."""

    target: Target
    own_addresses: bool
    requests: int = 0
    in_time: int = 0
    spared: int = 0
    refused: int = 0
    slowest: float = 0.0
    largest_error: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _bad: set[int] = field(default_factory=set)

    def start(self) -> None:
        """Let all of them ask at once, then about once a second each until `stop`."""
        for number in range(NEIGHBOURS):
            self._threads.append(threading.Thread(target=self._client, args=(number,)))
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Stop sending requests, and wait for those under way."""
        self._done.set()
        for each in self._threads:
            each.join()
        self.spared = NEIGHBOURS - len(self._bad)

    def _client(self, number: int) -> None:
        photo = jpeg(number, 640, 480)
        path = "/classify" if number % 2 else "/filter?name=gaussian_blur&sigma=2"
        request = post(path, photo, "image/jpeg")
        source = f"127.0.0.{number + 10}" if self.own_addresses else "127.0.0.1"
        self._one(number, request, source)
        while not self._done.wait(_PAUSE):
            self._one(number, request, source)

    def _one(self, number: int, request: bytes, source: str) -> None:
        started = time.monotonic()
        while True:
            status, size, wait, end = self._try(request, source)
            took = time.monotonic() - started
            again = status in (503, 429) and took + wait < WITHIN
            with self._lock:
                if status in (503, 429):
                    self.refused += 1
                if end != "200":
                    self.ends[end] += 1
                    self.largest_error = max(self.largest_error, size)
            if not again:
                break
            time.sleep(wait)
        with self._lock:
            self.requests += 1
            self.slowest = max(self.slowest, took)
            good = end == "200" and took <= WITHIN
            self.in_time += good
            if not good:
                self._bad.add(number)

    def _try(self, request: bytes, source: str) -> tuple[int | None, int, float, str]:
        """Return the status, the size of the answer, the seconds to wait if refused, and a word for
        the tally.
        """
        started = time.monotonic()
        try:
            connection = connect(replace(self.target, source=source), _PATIENCE)
        except OSError as error:
            return None, 0, 1.0, type(error).__name__
        with connection:
            found = answer(connection, started, _PATIENCE, request)
        match = _RETRY.search(found.head)
        wait = float(match[1]) if match else 1.0
        return found.status, found.body_bytes, wait, str(found.status or found.end)
