"""Mixed traffic: photos, filters, forms, URLs that are refused, odd files, leaving clients."""

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.harness.attack import Target
from tests.chaos.harness.http import ask, connect, post
from tests.chaos.hostile import damaged, jpeg, others, png
from tests.pictures import jpeg as photo
from tests.pictures import png as picture
from tests.shared import ODD

GOOD = ("classify", "filter", "form", "process")
"""Kinds that must be answered with 200."""


def requests() -> list[tuple[str, bytes]]:
    """Return prepared requests, each with the name of its kind; half of them are good."""
    kind = "application/octet-stream"
    found = [("classify", post("/classify", photo(n, 320 + 16 * n, 240), kind)) for n in range(12)]
    filters = ("gaussian_blur&sigma=3", "median&size=5&format=webp", "sobel&format=png")
    found += [
        ("filter", post(f"/filter?name={name}", photo(n, 480, 360), kind))
        for n, name in enumerate(filters * 4)
    ]
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
    form = b"".join(head + photo(n) + b"\r\n" for n in range(6)) + b"--b--\r\n"
    found += [("form", post("/classify", form, "multipart/form-data; boundary=b"))] * 3
    found += [("process", post("/process", form, "multipart/form-data; boundary=b"))] * 2
    found += [("classify", post("/classify", picture(n), kind)) for n in range(4)]
    refused = b'{"urls": ["http://169.254.169.254/", "http://127.0.0.1/"]}'
    found += [("refused", post("/classify", refused, "application/json"))] * 2
    bad = (b"", b"nothing", photo(1)[:900], png.many_chunks(20_000), jpeg.progressive(1500, 40))
    found += [("bad", post("/classify", data)) for data in (*bad, others.bmp_deltas(400_000, 900))]
    found += [("bad", post("/filter?name=invert", data)) for _, data in damaged.files(60)]
    odd = [path for path in sorted(ODD.glob("*")) if path.stat().st_size < 2_000_000]
    found += [("bad", post("/filter?name=invert", path.read_bytes())) for path in odd[::4]]
    late = "X-Deadline-Ms: 30\r\n"
    found += [("late", post("/filter?name=median&size=25", photo(3, 900, 700), kind, late))] * 8
    return found


@dataclass(slots=True)
class Traffic:
    """Closed-loop clients until `stop`; every good request that was not answered is counted."""

    target: Target
    clients: int = 8
    statuses: Counter[str] = field(default_factory=Counter)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Start the clients."""
        prepared = requests()
        self._threads = [
            threading.Thread(target=self._client, args=(n, prepared)) for n in range(self.clients)
        ]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Stop the clients after the requests that are under way."""
        self._done.set()
        for each in self._threads:
            each.join()

    def lost(self) -> int:
        """Return the number of good requests that were neither answered with 200 nor refused."""
        fine = ("200", "503", "429")
        lost = 0
        for key, count in self.statuses.items():
            kind, word = key.split()
            lost += count if kind in GOOD and word not in fine else 0
        return lost

    def crashes(self) -> int:
        """Return the number of answers of 500."""
        return sum(count for key, count in self.statuses.items() if key.endswith(" 500"))

    def _client(self, number: int, prepared: list[tuple[str, bytes]]) -> None:
        chance = random.Random(number)
        while not self._done.is_set():
            if chance.random() < 0.05:
                self._leave(chance.choice(prepared)[1], chance)
                continue
            good = chance.random() < 0.6
            kinds = [each for each in prepared if (each[0] in GOOD) == good]
            kind, request = chance.choice(kinds)
            found = ask(self.target, request, 60.0)
            with self._lock:
                self.statuses[f"{kind} {found.status or found.end}"] += 1
            time.sleep(chance.uniform(0, 0.1))

    def _leave(self, request: bytes, chance: random.Random) -> None:
        """Send a part, or all, and go."""
        with suppress(OSError):
            connection: socket.socket = connect(self.target)
            with connection:
                connection.sendall(request[: chance.randrange(1, len(request) + 1)])
                time.sleep(chance.uniform(0, 0.05))
        with self._lock:
            self.statuses["left early"] += 1
