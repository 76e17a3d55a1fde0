"""Filters give the same bytes in bands of rows as on the whole image."""

from typing import Any

import numpy as np
import pytest

from models.domain.image import Image, Pixels
from models.domain.job import Job
from workers.engines.cpu.engine import _filtered
from workers.filters import row_bands
from workers.filters.registry import FILTERS, AnyFilter, parse_chain
from workers.operations import FilterChain

WIDE: tuple[dict[str, Any], ...] = (
    {"name": "gaussian_blur", "sigma": 0.3},
    {"name": "gaussian_blur", "sigma": 1, "sigma_y": 6},
    {"name": "box_blur", "radius": 20},
    {"name": "box_blur", "radius": 80},
    {"name": "motion_blur", "length": 31, "angle": 90},
    {"name": "motion_blur", "length": 30, "angle": 0},
    {"name": "median", "size": 31},
    {"name": "rank", "size": 9, "percentile": 0},
    {"name": "rank", "size": 9, "percentile": 30},
    {"name": "unsharp_mask", "sigma": 5, "threshold": 4},
    {"name": "dog", "sigma1": 4, "sigma2": 1},
    {"name": "guided", "radius": 10},
    {"name": "laplacian", "ksize": 7},
    {"name": "laplacian", "ksize": 1},
    {"name": "bilateral", "diameter": 3},
    {"name": "autocontrast", "cutoff": 0},
    {"name": "autocontrast", "cutoff": 20, "preserve_tone": True},
    {"name": "contrast", "factor": 0},
    {"name": "contrast", "factor": 1},
    {"name": "adaptive_threshold", "block": 41, "method": "gaussian"},
    *(
        {"name": "morphology", "op": op, "size": 4, "iterations": 2, "shape": shape}
        for op in ("erode", "dilate", "open", "close", "gradient", "tophat", "blackhat")
        for shape in ("rect", "ellipse")
    ),
    *(
        {"name": "convolve", "kernel": [[1, -2, 3]] * 7, "divisor": 5, "border_mode": mode}
        for mode in ("replicate", "reflect", "mirror", "wrap", "constant")
    ),
    {"name": "convolve", "kernel": [[n * 7 % 5 - 2 for n in range(31)]] * 31, "divisor": 9},
    *({"name": "preset", "kernel": name} for name in ("blur", "smooth_more", "contour", "detail")),
)
OPS = [*(dict(each.example) for each in FILTERS.values()), *WIDE]


def noise(channels: int) -> Pixels:
    levels = np.random.default_rng(7).beta(2, 4, (97, 71, channels)) * 240
    return (levels + 5).astype(np.uint8)


def parsed(op: dict[str, Any]) -> AnyFilter:
    (found,) = parse_chain([op])
    return found


@pytest.fixture(autouse=True)
def _small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_bands, "LARGE", 1)
    monkeypatch.setattr(row_bands, "BAND_BYTES", 10_000)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_bands_have_the_bytes_of_the_whole(op: dict[str, Any], channels: int) -> None:
    filter_, pixels = parsed(op), noise(channels)
    whole = filter_.apply(pixels)
    assert np.array_equal(row_bands.apply(filter_, pixels, overwrite=False), whole)
    assert np.array_equal(pixels, noise(channels))
    assert np.array_equal(row_bands.apply(filter_, pixels, overwrite=True), whole)


@pytest.mark.parametrize("name", ["invert", "gaussian_blur", "sobel", "median"])
def test_a_result_takes_the_place_of_an_input_that_is_needed_no_longer(name: str) -> None:
    pixels = noise(3)
    assert row_bands.apply(parsed({"name": name}), pixels, overwrite=True) is pixels


def test_a_chain_keeps_an_image_that_others_read_and_overwrites_its_own_results() -> None:
    ops = [{"name": "sepia"}, {"name": "box_blur", "radius": 3}, {"name": "invert"}]
    chain, pixels = FilterChain(parse_chain(ops)), noise(3)
    kept = _filtered(Job(chain, Image(pixels)))
    assert np.array_equal(pixels, noise(3))
    overwritten = _filtered(Job(chain, Image(pixels)), owned=True)
    assert isinstance(kept, Image)
    assert isinstance(overwritten, Image)
    assert overwritten.pixels is pixels
    assert np.array_equal(kept.pixels, pixels)


def test_a_result_shares_no_memory_with_a_source_that_others_read() -> None:
    pixels = noise(3)
    chain = FilterChain(parse_chain([{"name": "crop", "top": 10, "height": 20}]))
    result = _filtered(Job(chain, Image(pixels)))
    assert isinstance(result, Image)
    assert not np.may_share_memory(result.pixels, pixels)


def test_large_images_take_a_band_beside_their_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shape, pixels = (7000, 7000, 3), 49_000_000
    for name in ("invert", "gaussian_blur", "box_blur", "equalize", "autocontrast", "contrast"):
        chain = FilterChain(parse_chain([{"name": name}]))
        assert chain.memory(shape, overwrite=True) <= 3 * pixels + (95 << 20)
        assert chain.memory(shape) <= 6 * pixels + (95 << 20)


def test_small_images_are_filtered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pixels = noise(3)
    result = row_bands.apply(parsed({"name": "invert"}), pixels, overwrite=True)
    assert result is not pixels  # which bands would have overwritten
    assert np.array_equal(pixels, noise(3))
