"""Runs of filters that are tables: one pass, and the bytes of one filter after the other."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.domain.deadline import NEVER
from models.domain.image import Image, Pixels
from models.domain.job import Job
from tests.unit.workers.filters.images import images
from workers.engines.cpu.engine import _filtered
from workers.filters.registry import parse_chain
from workers.operations import FilterChain

TABLES = [
    st.builds(lambda: {"name": "invert"}),
    st.builds(lambda f: {"name": "brightness", "factor": f}, st.floats(0, 8)),
    st.builds(lambda g: {"name": "gamma", "gamma": g}, st.floats(0.05, 20)),
    st.builds(lambda b: {"name": "levels", "in_black": b, "out_white": 250}, st.integers(0, 254)),
    st.builds(lambda b: {"name": "posterize", "bits": b}, st.integers(1, 8)),
    st.builds(lambda t: {"name": "solarize", "threshold": t}, st.integers(0, 256)),
]
OTHERS = ["grayscale", "saturation", "sepia", "contrast", "flip", "sobel", "colorize", "equalize"]
OPS = st.lists(
    st.one_of(*TABLES, st.sampled_from(OTHERS).map(lambda name: {"name": name})),
    min_size=1,
    max_size=8,
)


def chain(*ops: Any) -> FilterChain:
    return FilterChain(parse_chain([{"name": op} if isinstance(op, str) else op for op in ops]))


def one_by_one(operation: FilterChain, pixels: Pixels) -> Pixels:
    for each in operation.filters:
        pixels = each.apply(pixels)
    return pixels


@given(ops=OPS, pixels=images())
def test_any_chain_gives_the_bytes_of_its_filters_one_by_one(
    ops: list[dict[str, object]], pixels: Pixels
) -> None:
    operation = chain(*ops)
    found = _filtered(Job(operation, Image(pixels), NEVER))
    assert isinstance(found, Image)
    assert np.array_equal(found.pixels, one_by_one(operation, pixels))


def test_chains_of_different_tables_share_a_batch_and_the_names_of_filters_stay() -> None:
    first, second = chain("invert", "gamma", "sobel"), chain("posterize", "sobel")
    assert first.batch_key == second.batch_key
    assert first.batch_key != chain("sobel").batch_key
    assert [each.name for each in first.filters] == ["invert", "gamma", "sobel"]
    assert first == chain("invert", "gamma", "sobel")
    assert first != second
