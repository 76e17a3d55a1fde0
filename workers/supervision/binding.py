"""Choose the CPUs that the processes of each GPU run on: near it, and no other GPU's."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.usable_cpus import usable_cpus
from workers.supervision.cpu_topology import Cpus, cores_of, divided, near_cpus
from workers.supervision.gpu_discovery import bus_id


@dataclass(frozen=True, slots=True)
class Binding:
    """The CPUs of the processes of one GPU; empty where they may run on all."""

    workers: Sequence[int] = ()
    front_ends: Sequence[int] = ()


class Placement:
    """Where the processes of a server run, and which workers are near a front end.

    `gpus` is the number of the GPU of each worker, None for one on the CPU. Front ends belong to
    the GPUs in turn. The CPUs are divided between the GPUs (`divided` of `cpu_topology.py`), and
    front ends of a GPU get its whole share. Its workers get the part of it that is near the GPU, if
    that has at least `cpus_each` CPUs for each of them. Without `bind`, or where shares would be
    too uneven, processes run on all CPUs that this process may use.
    """

    def __init__(self, gpus: Sequence[int | None], cpus_each: int, *, bind: bool = True) -> None:
        self._gpus = gpus
        self._count = len({gpu for gpu in gpus if gpu is not None})
        least = cpus_each * len(gpus) // max(1, self._count)
        self._bindings = _bindings(self._count, least) if bind and self._count else None

    def worker(self, gpu: int | None) -> Sequence[int]:
        """Return the CPUs of the workers of a GPU; none if they may run on all."""
        return () if self._bindings is None or gpu is None else self._bindings[gpu].workers

    def front_end(self, number: int) -> dict[str, Sequence[int]]:
        """Return a front end's `cpus`, and as `near` the numbers of the workers of its own GPU.

        None are near where there are fewer than two GPUs.
        """
        if self._count < 2:
            bound = self._bindings
            return {"cpus": () if bound is None else bound[0].front_ends, "near": ()}
        own = number % self._count
        near = [worker for worker, gpu in enumerate(self._gpus) if gpu == own]
        cpus = () if self._bindings is None else self._bindings[own].front_ends
        return {"cpus": cpus, "near": near}


def _bindings(gpus: int, worker_cpus: int) -> list[Binding] | None:
    usable = usable_cpus()
    near = [near_cpus(bus_id(number)) for number in range(gpus)]
    shares = divided(cores_of(usable), near)
    if shares is None:
        return None
    return [
        _binding(share, each & share, usable, worker_cpus)
        for share, each in zip(shares, near, strict=True)
    ]


def _binding(share: Cpus, near: Cpus, usable: Cpus, worker_cpus: int) -> Binding:
    own = near if len(near) >= worker_cpus else share
    return Binding(*(() if each == usable else sorted(each) for each in (own, share)))
