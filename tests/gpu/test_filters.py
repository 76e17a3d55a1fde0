"""Every filter that has kernels: the bytes of its specification, in batches of mixed sizes."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from models.errors import InvalidParameter
from models.image import Image
from tests.emulation.staging import noise
from tests.gpu.conftest import MAX_PIXELS, Run, as_jpeg, photos
from workers.filters import FILTERS, parse_chain, parse_one
from workers.filters.base import Filter
from workers.operations import FilterChain

SIZES = [(1, 1), (1, 64), (97, 1), (2, 3), (17, 13), (127, 131), (500, 375), (1080, 1920)]
NAMES = [name for name, each in FILTERS.items() if each.passes]


def extremes(filter_: type[Filter]) -> list[dict[str, object]]:
    """The example, and every numeric parameter at both ends of its range, the others at rest."""
    found: list[dict[str, object]] = [dict(filter_.example), {"name": filter_.example["name"]}]
    for name, schema in filter_.model_json_schema()["properties"].items():
        for key in ("minimum", "maximum"):
            if key in schema:
                found.append({**filter_.example, name: schema[key]})
        for value in schema.get("enum", ()):
            found.append({**filter_.example, name: value})
    return [each for n, each in enumerate(found) if each not in found[:n] and _valid(each)]


def _valid(operation: dict[str, object]) -> bool:
    """Some parameters bound each other."""
    try:
        parse_chain([operation])
    except InvalidParameter:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_filter_gives_the_bytes_of_its_specification(run: Run, name: str) -> None:
    images = [Image(noise(h, w, c)) for h, w in SIZES for c in (1, 3, 4)]
    off: list[tuple[int, int]] = []
    for operation in extremes(FILTERS[name]):
        filter_ = parse_one(operation.pop("name"), operation)
        chain = FilterChain((filter_,))
        large = (1080, 1920)
        some = [i for i in images if (i.height, i.width) != large or _quick(operation)]
        for batch in _batches(chain, some):
            for found, image in zip(run(chain, batch).values, batch, strict=True):
                assert isinstance(found, Image)
                expected = filter_.apply(image.pixels).astype(np.int16)
                assert found.pixels.shape == expected.shape
                distance = np.abs(found.pixels - expected)
                assert distance.max() <= (1 if filter_.device_tolerance else 0), (
                    operation,
                    image.pixels.shape,
                )
                off.append((int(distance.sum()), distance.size))
    different, samples = (sum(column) for column in zip(*off, strict=True))
    assert different <= filter_.device_tolerance * samples


def _batches(chain: FilterChain, images: list[Image]) -> Iterator[list[Image]]:
    """The images that a chain can take and that do not become too large, as a slot holds them."""
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
    """Whether the specification takes less than seconds at full size."""
    sizes = [v for k, v in operation.items() if k in ("sigma", "sigma_y", "radius", "size")]
    return "search" not in operation and all(isinstance(v, int | float) and v <= 15 for v in sizes)


def test_one_batch_takes_different_parameters(run: Run) -> None:
    chains = [FilterChain((parse_one("gaussian_blur", {"sigma": s}),)) for s in (0.5, 3, 20)]
    image = Image(noise(60, 80, 3))
    for chain in chains:
        (found,) = run(chain, [image]).values
        assert isinstance(found, Image)
        assert np.array_equal(found.pixels, chain.filters[0].apply(image.pixels))


def test_runs_of_tables_give_the_bytes_of_their_filters_one_by_one(run: Run) -> None:
    names = [["invert", "gamma", "posterize"], ["solarize"], ["levels", "brightness"]]
    chains = [
        FilterChain((*(parse_one(n, {}) for n in run_), parse_one("sobel", {}))) for run_ in names
    ]
    for chain in chains:
        for image in (Image(noise(60, 80, channels)) for channels in (1, 3, 4)):
            (found,) = run(chain, [image]).values
            pixels = image.pixels
            for each in chain.filters:
                pixels = each.apply(pixels)
            assert isinstance(found, Image)
            assert np.array_equal(found.pixels, pixels)


def test_a_chain_from_jpeg_to_pixels_never_leaves_the_device(run: Run) -> None:
    from models.codec import pixels_of

    source = as_jpeg(photos()[0])
    names = ["gaussian_blur", "saturation", "median", "unsharp_mask", "contrast"]
    chain = FilterChain(tuple(parse_one(name, {}) for name in names))
    (found,) = run(chain, [source]).values
    pixels = pixels_of(source).pixels
    for each in chain.filters:
        pixels = each.apply(pixels)
    assert isinstance(found, Image)
    assert np.array_equal(found.pixels, pixels), json.dumps(names)
