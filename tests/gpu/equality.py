"""Filters on the GPU against their specifications: mixed sizes, parameters at both ends."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.domain.errors import InvalidParameter
from models.domain.image import Image, Pixels, Source
from models.domain.job import Job, Operation
from tests.emulation.staging import noise
from tests.fakes import run_batch
from workers.filters.base import Filter
from workers.filters.registry import FILTERS, parse_chain, parse_one
from workers.operations import FilterChain
from workers.scheduling.engine import BatchResult, Engine, SlotT

SIZES = [(1, 1), (1, 64), (97, 1), (2, 3), (17, 13), (127, 131), (500, 375), (1080, 1920)]
"""Each with one, three and four channels."""

NAMES = [*FILTERS]

MAX_PIXELS = 16_000_000
"""Of a batch."""


Run = Callable[[Operation, Sequence[Source]], BatchResult]


@dataclass(slots=True)
class Compared:
    """What all images of a filter came to; `where` is the parameters and shape of the worst one."""

    parameters: int = 0
    images: int = 0
    samples: int = 0
    different: int = 0
    most_off: int = 0
    where: str = ""


def runner(engine: Engine[SlotT]) -> Run:
    """Return a function that runs one batch at a time through an engine."""

    def run(operation: Operation, sources: Sequence[Source]) -> BatchResult:
        return run_batch(engine, [Job(operation, source) for source in sources])

    return run


def specified(chain: FilterChain, pixels: Pixels) -> Pixels:
    """Return what the filters of a chain make of an image, one after the other."""
    for each in chain.filters:
        pixels = each.apply(pixels)
    return pixels


def compared(run: Run, name: str) -> Compared:
    """Compare every image of `SIZES` with every one of `extremes`, in batches."""
    images = [Image(noise(h, w, c)) for h, w in SIZES for c in (1, 3, 4)]
    result = Compared()
    for operation in extremes(FILTERS[name]):
        filter_ = parse_one(str(operation.pop("name")), operation)
        chain = FilterChain((filter_,))
        some = [i for i in images if (i.height, i.width) != SIZES[-1] or _quick(operation)]
        result.parameters += 1
        batches = ([each] for each in some) if filter_.measures else _batches(chain, some)
        for batch in batches:
            chain = FilterChain((filter_.measured(batch[0].pixels),))
            for found, image in zip(run(chain, batch).values, batch, strict=True):
                assert isinstance(found, Image), found
                expected = filter_.apply(image.pixels).astype(np.int16)
                assert found.pixels.shape == expected.shape, (operation, image.pixels.shape)
                distance = np.abs(found.pixels - expected)
                result.images += 1
                result.samples += distance.size
                result.different += int(np.count_nonzero(distance))
                if distance.max() > result.most_off:
                    result.most_off = int(distance.max())
                    result.where = f"{operation} {image.pixels.shape}"
    return result


def extremes(filter_: type[Filter]) -> list[dict[str, object]]:
    """Return the example, and every numeric parameter at both ends of its range, the others at
    their defaults.
    """
    found: list[dict[str, object]] = [dict(filter_.example), {"name": filter_.example["name"]}]
    for name, schema in filter_.model_json_schema()["properties"].items():
        ends = [schema[key] for key in ("minimum", "maximum") if key in schema]
        found += [{**filter_.example, name: value} for value in (*ends, *schema.get("enum", ()))]
    return [each for n, each in enumerate(found) if each not in found[:n] and _valid(each)]


def _valid(operation: dict[str, object]) -> bool:
    """Return whether an operation is valid: some parameters bound each other."""
    try:
        parse_chain([operation])
    except InvalidParameter:
        return False
    return True


def _batches(chain: FilterChain, images: list[Image]) -> Iterator[list[Image]]:
    """Yield the images that a chain can take and that do not become too large, as a slot holds
    them.
    """
    batch: list[Image] = []
    used = 0
    for image in images:
        try:
            pixels = chain.most_pixels(image.height, image.width)
        except InvalidParameter:
            continue
        if pixels > MAX_PIXELS // 2:
            continue
        if used + pixels > MAX_PIXELS // 2:
            yield batch
            batch, used = [], 0
        batch.append(image)
        used += pixels
    if batch:
        yield batch


def _quick(operation: dict[str, object]) -> bool:
    """Return whether the specification takes less than seconds at full size."""
    sizes = [v for k, v in operation.items() if k in ("sigma", "sigma_y", "radius", "size")]
    return "search" not in operation and all(isinstance(v, int | float) and v <= 15 for v in sizes)
