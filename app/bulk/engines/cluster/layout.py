"""How many actors each node of a cluster has, and how many CPUs and GPUs each of them takes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MOST_CPUS = 8
"""Most CPUs of an actor, unless `--ray-cpus` gives their number. One Python process answers its
images on one core, which limits how many others it keeps busy."""

GPU_CHUNKS = 12
"""Chunks of an actor with a GPU at a time, as many as each reader has without Ray."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor runs: actor number `number` of a node, with these CPUs and GPUs.

    `name` is the address of the node.
    """

    node: str
    name: str
    number: int
    cpus: int
    gpus: int

    @property
    def chunks(self) -> int:
        """Return how many chunks the actor has at a time: while some are computed, the next ones
        travel and are decoded. More would leave other actors without work at the end."""
        return GPU_CHUNKS if self.gpus else 2 + self.cpus


def places(nodes: Iterable[Mapping[str, Any]], cpus: int, *, gpus: bool) -> list[Place]:
    """Return the places of actors on all nodes that are alive, as `ray.nodes()` describes them.

    A node with GPUs has an actor for each of them, if `gpus` are wanted and any node has one; then
    nodes without GPUs have none. Otherwise a node has an actor for each `cpus` of its CPUs. With 0,
    its CPUs are divided evenly among as few actors as MOST_CPUS allows.
    """
    alive = [each for each in nodes if each["Alive"]]
    on_gpus = gpus and any(_count(each, "GPU") for each in alive)
    found: list[Place] = []
    for node in alive:
        total, devices = _count(node, "CPU"), _count(node, "GPU")
        if on_gpus:
            count = devices
            each = cpus or min(MOST_CPUS, max(1, total // max(1, devices)))
        else:
            each = cpus or total // max(1, -(-total // MOST_CPUS))
            count = total // each if each else 0
        name = str(node["NodeManagerAddress"])
        found += (Place(node["NodeID"], name, n, each, int(on_gpus)) for n in range(count))
    return found


def _count(node: Mapping[str, Any], resource: str) -> int:
    return int(node["Resources"].get(resource, 0))
