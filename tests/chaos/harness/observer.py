"""Watches a server while it is attacked: `/livez` on new connections, memory, CPU time."""

import threading
import time
from dataclasses import dataclass, field, replace

from tests.chaos.harness.attack import Target
from tests.chaos.harness.http import ask
from tests.chaos.harness.processes import usage

_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_PATIENCE = 60.0
_EVERY = 0.1
_MEMORY_EVERY = 0.2


@dataclass(slots=True)
class Observer:
    """Threads that measure until `stop`; start it before the attack, when the server is idle."""

    target: Target
    livez_worst: float = 0.0
    livez_failed: int = 0
    livez_asked: int = 0
    idle_bytes: int = 0
    peak_bytes: int = 0
    cpu: float = 0.0
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _cpu_before: float = 0.0

    def start(self) -> None:
        """Measure what the idle server holds, then begin."""
        idle = usage(self.target.pid)
        self.idle_bytes = self.peak_bytes = idle.memory
        self._cpu_before = idle.cpu
        self._threads = [threading.Thread(target=each) for each in (self._livez, self._memory)]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End; the last probe of `/livez` may still take its time."""
        self._done.set()
        for each in self._threads:
            each.join()
        self.cpu = max(self.cpu, usage(self.target.pid).cpu - self._cpu_before)

    def _livez(self) -> None:
        while not self._done.is_set():
            started = time.monotonic()
            found = ask(replace(self.target, source="127.0.0.1"), _LIVEZ, _PATIENCE)
            self.livez_asked += 1
            self.livez_worst = max(self.livez_worst, time.monotonic() - started)
            self.livez_failed += found.status != 200
            self._done.wait(_EVERY)

    def _memory(self) -> None:
        while not self._done.is_set():
            found = usage(self.target.pid)
            self.peak_bytes = max(self.peak_bytes, found.memory)
            self.cpu = max(self.cpu, found.cpu - self._cpu_before)
            self._done.wait(_MEMORY_EVERY)
