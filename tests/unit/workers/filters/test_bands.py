"""Filters give the same bytes in bands of rows, or of columns, as on the whole image."""

import itertools
from typing import Any

import numpy as np
import pytest

from models.domain.image import Image, Pixels
from models.domain.job import Job
from tests.memory import traced
from workers.engines.cpu.engine import _filtered
from workers.filters import bands
from workers.filters.base import Filter
from workers.filters.registry import FILTERS, parse_chain
from workers.operations import FilterChain

WIDE: tuple[dict[str, Any], ...] = (
    {"name": "gaussian_blur", "sigma": 0.3},
    {"name": "gaussian_blur", "sigma": 1, "sigma_y": 6},
    {"name": "gaussian_blur", "sigma": 6, "sigma_y": 0.3},
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
    {"name": "convolve", "kernel": [[n * 7 % 5 - 2 for n in range(31)]], "divisor": 9},
    *({"name": "preset", "kernel": name} for name in ("blur", "smooth_more", "contour", "detail")),
)
OPS = [*(dict(each.example) for each in FILTERS.values()), *WIDE]


def noise(channels: int, height: int = 97, width: int = 71) -> Pixels:
    levels = np.random.default_rng(7).beta(2, 4, (height, width, channels)) * 240
    return (levels + 5).astype(np.uint8)


def parsed(op: dict[str, Any]) -> Filter:
    (found,) = parse_chain([op])
    return found


@pytest.fixture(autouse=True)
def _small_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "LARGE", 1)
    monkeypatch.setattr(bands, "BAND_BYTES", 10_000)


@pytest.mark.parametrize("name", FILTERS)
def test_bands_of_rows_and_of_columns_have_the_bytes_of_the_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [op for op in OPS if op["name"] == name]
    for op in ops:
        for channels in (1, 3, 4):
            check_equal(parsed(op), noise(channels))
    monkeypatch.setattr(bands, "WIDEST", 30)
    for op in ops:
        if name == "crop":  # the example is larger than these images
            op = {"name": "crop", "left": 8, "width": 54}
        for channels, size in itertools.product((1, 4), ((71, 97), (1, 300))):
            check_equal(parsed(op), noise(channels, *size))


def check_equal(filter_: Filter, pixels: Pixels) -> None:
    """Compare the bands with the whole image, which keeps its pixels unless it may lose them."""
    before, whole = pixels.copy(), filter_.apply(pixels)
    assert np.array_equal(bands.apply(filter_, pixels, overwrite=False), whole)
    assert np.array_equal(pixels, before)
    assert np.array_equal(bands.apply(filter_, pixels, overwrite=True), whole)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "name",
    ["clahe", "noise", "pixelate", "vignette", "invert", "gaussian_blur", "sobel", "median"],
)
def test_a_result_takes_the_place_of_an_input_that_is_needed_no_longer(
    name: str, channels: int
) -> None:
    filter_, pixels = parsed({"name": name}), noise(channels, 701, 501)  # more than one piece
    whole = filter_.apply(pixels)
    assert bands.apply(filter_, pixels, overwrite=True) is pixels
    assert np.array_equal(pixels, whole)


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
    for name in (
        *("invert", "gaussian_blur", "box_blur", "equalize", "autocontrast", "contrast"),
        *("vignette", "noise", "pixelate"),
    ):
        chain = FilterChain(parse_chain([{"name": name}]))
        assert chain.memory(shape, overwrite=True) <= 3 * pixels + (95 << 20)
        assert chain.memory(shape) <= 6 * pixels + (95 << 20)


COUNTING: list[dict[str, Any]] = [
    {"name": "equalize"},
    {"name": "autocontrast", "cutoff": 1},
    {"name": "autocontrast", "preserve_tone": True},
    {"name": "contrast", "factor": 2},
    {"name": "colorize"},
]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("op", COUNTING, ids=str)
def test_an_estimate_covers_what_a_filter_of_tones_takes(op: dict[str, Any], channels: int) -> None:
    filter_, pixels = parsed(op), noise(channels, 1000, 1000)
    filter_.apply(pixels[:9, :9])
    with traced() as peak:
        result = filter_.apply(pixels)
        assert result.nbytes <= peak() <= filter_.memory(pixels.shape)
