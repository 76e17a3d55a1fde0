"""Vignette and noise against their definitions, and the generator against published numbers."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from models.domain.image import Pixels
from tests.unit.workers.filters.images import image, images, run
from workers.filters.effects import halves, lit, nudged, philox

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_numbers_its_authors_published(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    """Philox4x32-10 in kat_vectors of Random123."""
    words = [np.array([word], np.uint64) for word in counter]
    found = philox((words[0], words[1], words[2], words[3]), (key[0], key[1]))
    assert [int(word[0]) for word in found] == expected


def test_numbers_of_a_seed_are_the_words_in_order_low_halves_first() -> None:
    assert halves(0, 4, 0).tolist() == [0xE8D5, 0x6627, 0xC58D, 0xE169]
    assert np.array_equal(halves(0, 99, 5)[32:], halves(32, 67, 5))
    assert not np.array_equal(halves(0, 99, 5), halves(0, 99, 5 + (1 << 32)))


@given(images(), st.floats(0, 128), st.integers(0, 2**53 - 1))
def test_noise_adds_the_quantile_that_the_generator_names(
    pixels: Pixels, amount: float, seed: int
) -> None:
    colour = pixels[:, :, :3]
    u = halves(0, colour.size, seed).reshape(colour.shape)
    added = np.floor(scipy.stats.norm.ppf((u + 0.5) / 65536) * amount + 0.5)
    found = run("noise", pixels, amount=amount, seed=seed)[:, :, :3]
    assert np.array_equal(found, np.clip(colour + added, 0, 255))


def test_noise_has_the_deviation_asked_for_and_no_tendency() -> None:
    flat = np.full((300, 400, 3), 128, np.uint8)
    added = run("noise", flat, amount=12, seed=3) - 128.0
    assert abs(added.mean()) < 0.1
    assert abs(added.std() - 12) < 0.1
    left, right = added[:, :-1].ravel(), added[:, 1:].ravel()
    assert abs(np.corrcoef(left, right)[0, 1]) < 0.01


def test_noise_of_a_large_image_goes_on_where_the_last_piece_ended() -> None:
    flat = np.full((300, 301, 3), 128, np.uint8)
    found = run("noise", flat, amount=40, seed=9).ravel()
    u = halves(0, flat.size, 9)
    added = np.floor(scipy.stats.norm.ppf((u + 0.5) / 65536) * 40 + 0.5)
    assert np.array_equal(found, np.clip(128 + added, 0, 255))


@given(images(), st.floats(0, 1), st.floats(0, 0.99))
def test_vignette_is_its_formula_within_one(pixels: Pixels, amount: float, radius: float) -> None:
    height, width = pixels.shape[:2]
    y = (2 * np.arange(height) + 1 - height) / max(height - 1, 1)
    x = (2 * np.arange(width) + 1 - width) / max(width - 1, 1)
    distance = np.hypot(*np.meshgrid(y, x, indexing="ij")) / np.sqrt(2)
    t = np.clip((distance - radius) / (1 - radius), 0, 1)
    light = 1 - amount * (3 * t**2 - 2 * t**3)
    found = run("vignette", pixels, amount=amount, radius=radius)
    assert np.abs(found[:, :, :3] - pixels[:, :, :3] * light[..., None]).max() < 0.6


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (7, 1), (40, 51), (129, 1000)])
@pytest.mark.parametrize("amount", [0.37, 1.0])
def test_vignette_is_half_up_in_whole_numbers(size: tuple[int, int], amount: float) -> None:
    height, width = size
    down, across = (
        np.floor(((2 * np.arange(n) + 1 - n) / max(n - 1, 1)) ** 2 * (1 << 29) + 0.5).astype(int)
        for n in size
    )
    distance = np.sqrt(((down[:, None] + across) >> 14) / 65536)
    t = np.clip((distance - 0.1) / (1 - 0.1), 0, 1)
    light = np.floor((1 - amount * t * t * (3 - 2 * t)) * 65536 + 0.5).astype(int)[..., None]
    for pixels in (image(height, width, 3, 1), np.full((height, width, 1), 255, np.uint8)):
        found = run("vignette", pixels, amount=amount, radius=0.1)
        assert np.array_equal(found, (pixels * light + (1 << 15)) >> 16)


def test_every_level_in_every_light_is_half_up() -> None:
    light, levels = np.arange((1 << 16) + 1), np.arange(256, dtype=np.uint8)
    lights = nudged((light * 2.0**-16).astype(np.float32))
    for level in levels:
        pixels = np.full((1, len(light), 1), level)
        found = np.empty_like(pixels)
        lit(pixels, lights[None, :, None], found)
        assert np.array_equal(found[0, :, 0], (int(level) * light + (1 << 15)) >> 16)


def test_vignette_keeps_the_middle_and_takes_its_amount_from_the_corners() -> None:
    flat = np.full((101, 51, 1), 200, np.uint8)
    found = run("vignette", flat, amount=0.75)[..., 0]
    assert found[50, 25] == 200
    assert {found[0, 0], found[0, -1], found[-1, 0], found[-1, -1]} == {50}
    assert np.array_equal(found, found[::-1, ::-1])


@given(images())
def test_neither_changes_anything_at_amount_0(pixels: Pixels) -> None:
    for name in ("vignette", "noise"):
        assert np.array_equal(run(name, pixels, amount=0), pixels)


def test_noise_treats_every_row_alike() -> None:
    tall = image(97, 1, 1, 0)
    assert np.array_equal(run("noise", tall).ravel(), run("noise", tall.reshape(1, 97, 1)).ravel())
