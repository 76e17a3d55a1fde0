"""Collect metrics of every process of the server: supervisor, front ends, workers, decoders."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.system.process_family import ProcessUse, boot_time, process_family

_DECODERS = "app.decoders.child.fork_server"
"""What the command line of decoder processes and of their parent contains."""

_MEMBER = "app.processes.member"
"""The word of a command line behind which the name of a member of the server stands."""


_DECODERS_OF, _OTHER = "decoders of ", "other"
"""The begin of the name of decoder processes, and the name of processes that are not known."""


class Processes(Collector):
    """Collector of the processes below `root`, which starts all others of the server.

    Processes of one name are added up: the names have a bound, the numbers of processes do not.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._root_name = "server" if root == os.getpid() else "supervisor"
        self._cpu: dict[str, float] = defaultdict(float)

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance, so that registering reads no values."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read /proc and yield the sums of each name."""
        uses: dict[str, list[ProcessUse]] = defaultdict(list)
        names: dict[int, str] = {}
        for use in process_family(self._root):
            # A process whose parent ended during the walk has another parent already.
            parent = names.get(use.parent, _OTHER)
            name = self._root_name if use.pid == self._root else _name(use, parent)
            names[use.pid] = name
            uses[name].append(use)
        yield from _families(uses)
        yield self._cpu_family(uses)

    def _cpu_family(self, uses: Mapping[str, Sequence[ProcessUse]]) -> Metric:
        """Return the CPU time of each name, which never falls while this process lives.

        Decoders come and go: those that have ended are counted by their parent of the same name. A
        worker that has ended is not: its time would fall to the supervisor at once.
        """
        cpu = CounterMetricFamily("darkroom_process_cpu_seconds", "CPU time.", labels=["process"])
        for name, each in uses.items():
            found = sum(use.cpu for use in each)
            if name.startswith(_DECODERS_OF):
                found += sum(use.cpu_of_ended for use in each)
            self._cpu[name] = max(self._cpu[name], found)
            cpu.add_metric([name], self._cpu[name])
        return cpu


def server_root() -> int:
    """Return the process that started all others: the parent of a front end, or this one."""
    return os.getppid() if "PROMETHEUS_MULTIPROC_DIR" in os.environ else os.getpid()


def _families(uses: dict[str, list[ProcessUse]]) -> Iterator[Metric]:
    booted = boot_time()
    gauge = GaugeMetricFamily
    count = gauge("darkroom_processes", "Processes that run.", labels=["process"])
    memory = gauge(
        "darkroom_process_resident_memory_bytes",
        "Resident memory; what processes share is counted in each of them.",
        labels=["process"],
    )
    files = gauge("darkroom_process_open_fds", "Open file descriptors.", labels=["process"])
    threads = gauge("darkroom_process_threads", "Threads.", labels=["process"])
    started = gauge(
        "darkroom_process_start_time_seconds",
        "Start of the newest process, since 1970; it changes with every restart.",
        labels=["process"],
    )
    for name, each in uses.items():
        count.add_metric([name], len(each))
        memory.add_metric([name], sum(use.resident for use in each))
        files.add_metric([name], sum(use.descriptors for use in each))
        threads.add_metric([name], sum(use.threads for use in each))
        started.add_metric([name], booted + max(use.started for use in each))
    yield from (count, memory, files, threads, started)


def _name(use: ProcessUse, parent: str) -> str:
    """Return what a process does; `parent` is the name of its parent."""
    if any(_DECODERS in word for word in use.words):
        return parent if parent.startswith(_DECODERS_OF) else _DECODERS_OF + parent
    if _MEMBER in use.words[:-1]:
        return use.words[use.words.index(_MEMBER) + 1]
    return _OTHER
