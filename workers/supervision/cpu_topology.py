"""Read which CPUs share a core, and which are near a device; bind a process to CPUs.

The source is sysfs (kernel documentation, admin-guide/cputopology and ABI/testing/sysfs-bus-pci). A
sandbox may lack these files: then every CPU is a core of its own, and none is near a device.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

Cpus = frozenset[int]

_SIBLINGS = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_NEAR = "sys/bus/pci/devices/{}/local_cpulist"


def parse_cpus(text: str) -> Cpus:
    """Return the CPUs of a list of the kernel such as `0-3,8`; ValueError for other text."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def near_cpus(bus_id: str, root: Path = Path("/")) -> Cpus:
    """Return the CPUs of the NUMA node to which a PCI device is connected; none if it is unknown.

    `bus_id` has the form `0000:3b:00.0`; tests set `root`.
    """
    with suppress(OSError, ValueError):
        return parse_cpus((root / _NEAR.format(bus_id.lower())).read_text())
    return frozenset()


def cores_of(cpus: Collection[int], root: Path = Path("/")) -> list[Cpus]:
    """Return `cpus` as physical cores, in the order of their first CPU: hyperthreads together."""
    left, found = set(cpus), []
    for cpu in sorted(cpus):
        if cpu in left:
            siblings = {cpu}
            with suppress(OSError, ValueError):
                siblings |= parse_cpus((root / _SIBLINGS.format(cpu)).read_text())
            found.append(frozenset(siblings & left))
            left -= siblings
    return found


def divided(cores: Sequence[Cpus], near: Sequence[Cpus]) -> list[Cpus] | None:
    """Return the share of each device of the CPUs in `cores`; None if they are too uneven.

    That is when a device would get less than half of an equal part, as where the CPUs that this
    process may use are near other devices: each device has as many processes as any other.

    `near` are the CPUs near each device, none if that is unknown. A core goes to a device that it
    is near to, and one that is near to none to any. Devices with the same near cores get equal
    numbers of them, of which each is a run in the given order: such cores often share a cache.
    """
    shares: list[set[int]] = [set() for _ in near]
    counts = [0] * len(near)
    groups: dict[tuple[int, ...], list[Cpus]] = {}
    for core in cores:
        candidates = tuple(n for n, each in enumerate(near) if not each or each & core)
        groups.setdefault(candidates, []).append(core)
    # Cores with fewest candidates first, so that the others can even the shares out; cores that are
    # near to no device come last.
    order = sorted(groups.items(), key=lambda group: len(group[0]) or len(near) + 1)
    for candidates, members in order:
        for number, taken in _dealt(candidates or range(len(near)), counts, len(members)).items():
            shares[number].update(*members[:taken])
            counts[number] += taken
            members = members[taken:]
    least = sum(map(len, shares)) / (2 * len(shares))
    even = all(share and len(share) >= least for share in shares)
    return [frozenset(share) for share in shares] if even else None


def _dealt(candidates: Iterable[int], counts: Sequence[int], cores: int) -> dict[int, int]:
    """Return how many of some cores each candidate gets, those with the fewest first."""
    given = dict.fromkeys(candidates, 0)
    for _ in range(cores):
        given[min(given, key=lambda n: counts[n] + given[n])] += 1
    return given


def bind(cpus: Collection[int]) -> None:
    """Let all threads of this process, and those that they start, run on these CPUs only.

    Nothing changes where the system forbids it.
    """
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # the thread has ended, or another program owns the affinity
            os.sched_setaffinity(int(thread), cpus)
