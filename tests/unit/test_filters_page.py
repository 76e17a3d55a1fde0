"""docs/filters.md says what the filters say; `make docs` makes it."""

import re

import numpy as np
from PIL import Image

from app.responses.thumbnails import example
from tools.filters_page import BEFORE, PAGE, PICTURES, page
from workers.filters.registry import FILTERS

CHEAP = ("grayscale", "invert", "posterize", "box_blur", "sobel", "flip")


def picture(name: str) -> np.ndarray:
    with Image.open(PICTURES / f"{name}.webp") as file:
        return np.asarray(file.convert("RGB"))


def test_the_page_is_what_the_filters_say() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_the_page_shows_a_picture_of_every_filter_and_there_are_no_others() -> None:
    found = {path.name for path in PICTURES.iterdir()}
    assert found == {f"{name}.webp" for name in (BEFORE, *FILTERS)}, "run `make docs`"
    assert found == set(re.findall(r"\]\(filters/([^)]+)\)", page()))


def test_a_picture_is_what_the_filter_makes_of_the_scene() -> None:
    for name in CHEAP:
        assert np.array_equal(picture(name), example(name).pixels), "run `make docs`"
