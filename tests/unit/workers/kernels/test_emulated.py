"""Kernels, run on the CPU by the emulation, give the bytes of the specification."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.emulation.emulator import Memory
from tests.unit.workers.kernels.specified import assert_equal, image
from workers.filters.registry import FILTERS, describe, parse_one

SIZES = [(1, 1), (1, 7), (5, 1), (2, 3), (3, 2), (17, 13), (33, 40), (8, 131), (131, 9)]
LARGEST = {"pad": 60, "resize": 60}
"""Upper limits for parameters whose largest values would make the emulation too slow."""

NAMES = [name for name, filter_ in FILTERS.items() if filter_.passes]


def parameters(random: np.random.Generator, name: str, size: tuple[int, int]) -> Mapping[str, Any]:
    """Choose each parameter at an end, at its default or between; results stay small."""
    chosen: dict[str, Any] = {}
    for key, schema in describe(FILTERS[name])["parameters"].items():
        kind = schema.get("anyOf", [schema])[0]
        if "enum" in kind:
            chosen[key] = random.choice(kind["enum"])
        elif kind["type"] == "boolean":
            chosen[key] = bool(random.integers(2))
        elif kind["type"] == "string":
            chosen[key] = f"{random.integers(1 << 24):06x}"
        elif key == "kernel":
            rows, columns = random.integers(1, 32, 2) if random.integers(2) else (3, 5)
            chosen[key] = (9 * (2 * random.random((rows, columns)) - 1) ** 3).tolist()
        elif key == "regions":  # within any image, or beyond an edge; up to three
            places = 2 * random.random((random.integers(1, 4), 4)) - 1
            chosen[key] = [[x, y, 1 + abs(w), 1.01 - min(0, y) + h**2] for x, y, w, h in places]
        elif kind["type"] == "array":
            chosen[key] = (8 * (2 * random.random(12) - 1) ** 3).tolist()
        elif random.integers(4):
            low, high = kind["minimum"], min(kind["maximum"], LARGEST.get(name, kind["maximum"]))
            any_ = low + (high - low) * random.random() ** 3
            value = random.choice([low, high, any_, any_])
            whole = kind["type"] == "integer"
            chosen[key] = (int(value) | ("not" in kind)) if whole else float(value)
    if "regions" in chosen:
        chosen["unit"] = "share"
    if chosen.get("in_black", 0) >= chosen.get("in_white", 255):
        return {}
    return _inside(chosen, size) if name == "crop" else chosen


def _inside(window: Mapping[str, int], size: tuple[int, int]) -> Mapping[str, int]:
    """Return the numbers of a crop, reduced so that it lies inside an image."""
    top, left = (window.get(key, 0) % side for key, side in zip(("top", "left"), size, strict=True))
    height = 1 + window.get("height", 5) % (size[0] - top)
    width = 1 + window.get("width", 5) % (size[1] - left)
    return {"top": top, "left": left, "height": height, "width": width}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_mixed_batch_has_the_bytes_of_the_specification(name: str, seed: int) -> None:
    random = np.random.default_rng([seed, *name.encode()])
    shapes = [(*size, channels) for size in SIZES for channels in (1, 3, 4)] + [(70, 65, 3)]
    images = [image(random, *shape) for shape in shapes]
    filters = [parse_one(name, parameters(random, name, pixels.shape[:2])) for pixels in images]
    assert_equal(filters, images)


@pytest.mark.parametrize("name", NAMES)
def test_images_of_many_blocks_have_the_bytes_of_the_specification(name: str) -> None:
    random = np.random.default_rng(list(name.encode()))
    shapes = [(70, 301, 3), (21, 1100, 4), (300, 90, 1), (16, 1024, 3)]
    images = [image(random, *shape) for shape in shapes]
    assert_equal([parse_one(name, {})] * len(images), images)


def test_a_launch_of_more_images_than_threads_finds_each_one() -> None:
    random = np.random.default_rng(1)
    images = [image(random, 1 + n % 3, 1 + n % 5, 3) for n in range(600)]
    assert_equal([parse_one("invert", {})] * len(images), images)


def test_white_and_plain_images_do_not_overflow() -> None:
    images = [np.full((90, 70, channels), 255, np.uint8) for channels in (1, 3, 4)]
    for op in ({"name": "box_blur", "radius": 500}, {"name": "gaussian_blur", "sigma": 100}):
        name, *rest = op.items()
        assert_equal([parse_one(str(name[1]), dict(rest))] * 3, images)


def test_the_emulation_sees_a_write_beyond_a_buffer() -> None:
    memory = Memory(10)
    memory.check()
    memory._whole[memory._guards[0].size + 10] = 0
    with pytest.raises(AssertionError, match="beyond"):
        memory.check()
