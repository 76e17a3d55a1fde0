"""A staging slot of the CPU: the memory for the crops of one batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.codec import pixels_of
from models.domain.image import NetworkInput, Pixels
from models.domain.job import Job
from models.networks.spec import NetworkSpec
from workers.preprocess import crop

Crops = Pixels | NDArray[np.float32]
"""Crops, uint8 (n, crop, crop, 3), or the same normalised, float32 (n, 3, crop, crop)."""


@dataclass(slots=True, eq=False)
class CpuSlot:
    """A staging slot: the crops of one batch, uint8 (n, crop, crop, 3), and its jobs.

    `memory` has room for the crops of the largest batch of any network. Crops that came
    preprocessed are float32 (n, 3, crop, crop), in memory of their own.
    """

    memory: Pixels
    crops: Crops
    jobs: Sequence[Job] = ()


def placed(slot: CpuSlot, spec: NetworkSpec) -> Crops:
    """Return the crops of a slot's jobs for a network."""
    given = [job.image.values for job in slot.jobs if isinstance(job.image, NetworkInput)]
    if given:
        return np.stack(given)
    crops = reserved(slot, spec, len(slot.jobs))
    for target, job in zip(crops, slot.jobs, strict=True):
        target[:] = crop(pixels_of(job.image), spec.preprocessing)
    return crops


def reserved(slot: CpuSlot, spec: NetworkSpec, n: int) -> Pixels:
    """Return the beginning of the slot's memory as `n` crops of a network."""
    side = spec.preprocessing.crop
    return slot.memory[: n * side * side * 3].reshape(n, side, side, 3)
