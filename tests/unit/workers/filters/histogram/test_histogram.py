"""Filters of histograms against Pillow and OpenCV, sample by sample."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageOps

from models.domain.image import Pixels
from tests.pictures import drawing
from tests.unit.workers.filters.images import images, pillow, run, same


@given(images(channels=(1, 3)), st.sampled_from([0.0, 1.0, 10.0, 49.9]), st.booleans())
def test_autocontrast_is_pillow_s(pixels: Pixels, cutoff: float, tone: bool) -> None:
    expected = ImageOps.autocontrast(pillow(pixels), cutoff, preserve_tone=tone)
    found = run("autocontrast", pixels, cutoff=cutoff, preserve_tone=tone)
    assert same(found, expected)


@given(images(channels=(1, 3)))
def test_equalize_is_pillow_s(pixels: Pixels) -> None:
    assert same(run("equalize", pixels), ImageOps.equalize(pillow(pixels)))


@pytest.mark.parametrize("tiles", [1, 3, 8, 32])
def test_clahe_of_a_grey_image_is_opencv_s(tiles: int) -> None:
    grey = np.asarray(drawing(157, 101, mode="L"))
    expected = cv2.createCLAHE(3.0, (tiles, tiles)).apply(grey)
    assert same(run("clahe", grey[..., None], clip_limit=3, tiles=tiles), expected)


def test_clahe_of_a_colour_image_changes_lightness_and_little_else() -> None:
    pixels = np.asarray(drawing(157, 101))
    found = run("clahe", pixels)
    before, after = (cv2.cvtColor(p, cv2.COLOR_RGB2YCrCb).astype(int) for p in (pixels, found))
    expected = cv2.createCLAHE(2.0, (8, 8)).apply(before[..., 0].astype(np.uint8))
    inside = ((found > 0) & (found < 255)).all(2)
    assert np.abs(after[..., 0] - expected)[inside].max() <= 2
    assert np.abs(after[..., 1:] - before[..., 1:])[inside].max() <= 2
