"""The test of a GPU's engine before it serves: every kind of batch in every slot.

Each slot owns memory, events and a decoder, so work that succeeds in one may fail in
another. The slots are tested one by one and never taken from the queue of free slots: that queue
gives the same slot to the same kind whenever the number of kinds is a multiple of the number of
slots.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from models.codec import Encoding, ImageFormat, encode
from models.codec.encoder import Chroma
from models.codec.jpeg import inspect
from models.domain.errors import ServiceError
from models.domain.image import Image, Jpeg, NetworkInput
from models.domain.job import Job, Operation
from models.networks.spec import NetworkSpec
from workers.filters.registry import parse_one
from workers.operations import Classify, FilterChain, NetworkOutput
from workers.scheduling.engine import BatchResult

SlotT = TypeVar("SlotT")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of batch: the same job `size` times."""

    name: str
    job: Job
    size: int


class SelfTestFailed(RuntimeError):
    """A batch of the self-test failed, so this device cannot be used."""


def run_self_test(
    slots: Sequence[SlotT],
    kinds: Sequence[Kind],
    launch: Callable[[SlotT, Sequence[Job]], None],
    collect: Callable[[SlotT], BatchResult],
    clear: Callable[[SlotT], None],
) -> None:
    """Run every kind in every slot; SelfTestFailed when an answer is an error or is missing."""
    for number, slot in enumerate(slots):
        for kind in kinds:
            launch(slot, [kind.job] * kind.size)
            values = collect(slot).values
            clear(slot)
            where = f"{kind.name}, {kind.size} at a time, in slot {number}"
            if len(values) != kind.size:
                raise SelfTestFailed(f"{where}: {len(values)} answers came")
            for value in values:
                if isinstance(value, ServiceError):
                    raise SelfTestFailed(f"{where}: {value.code}: {value.detail}")


def kinds_of(
    image: Image,
    files: Sequence[Jpeg],
    networks: Iterable[NetworkSpec],
    file_counts: Collection[int],
) -> list[Kind]:
    """Return every kind of batch: filtered pixels and files, each output of each network, an input
    that was preprocessed, and each of the files, as many at a time as `file_counts` says.

    Files are classified where there is a network: that downloads less than filtered pixels.
    """
    filtering = FilterChain((parse_one("invert", {}),))
    kinds = [Kind("filtered pixels", Job(filtering, image), 1)]
    kinds += [Kind("filtered files", Job(filtering, each), 1) for each in files if file_counts]
    operation: Operation = filtering
    for spec in networks:
        operation = Classify(network=spec.name)
        for output in NetworkOutput:
            job = Job(Classify(network=spec.name, output=output), image)
            kinds.append(Kind(f"{output.value} of {spec.name}", job, 1))
        values = np.zeros((3, spec.preprocessing.crop, spec.preprocessing.crop), np.float32)
        job = Job(Classify(network=spec.name, preprocessed=True), NetworkInput(values))
        kinds.append(Kind(f"an input of {spec.name}", job, 1))
    return kinds + [
        Kind(f"files of {file.subsampling.value}", Job(operation, file), n)
        for file in files
        for n in file_counts
    ]


def samples(side: int) -> tuple[Image, list[Jpeg]]:
    """Return a square image of noise, uint8 (side, side, 3), and a JPEG of each subsampling.

    A JPEG of noise has as many bytes as a photo or more: the decoder's memory for files grows with
    the first large one.
    """
    image = Image(np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))
    return image, [_jpeg(image, "420"), _jpeg(image, "422"), _jpeg(image, "444")]


def _jpeg(image: Image, chroma: Chroma) -> Jpeg:
    data = encode(image, ImageFormat.JPEG, Encoding(chroma=chroma))
    found = inspect(data)  # a front end would not see the end of noise, and decode it itself
    assert found is not None
    stream = np.frombuffer(data, np.uint8, found.length)
    return Jpeg(stream, found.height, found.width, 1, found.subsampling)
