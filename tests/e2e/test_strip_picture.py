"""The README's strip of pictures shows what the service answers."""

import numpy as np
import pytest
from PIL import Image

from tests.e2e.conftest import Start
from tools.strip_picture import STRIP, strip, tiles

MOST = 3.0
"""Mean difference of a tile from the committed one, in levels: lossy WebP takes about 1; another
of these pictures differs by 15 or more."""


@pytest.mark.slow
def test_the_strip_shows_the_answers_of_a_server(start: Start) -> None:
    with start(weights="bundled") as running:
        made = tiles(running.client)
    drawn = np.asarray(strip(made), np.int16)
    with Image.open(STRIP) as file:
        kept = np.asarray(file.convert("RGB"), np.int16)
    assert kept.shape == drawn.shape
    for part, expected in zip(
        np.array_split(kept, len(made), axis=1),
        np.array_split(drawn, len(made), axis=1),
        strict=True,
    ):
        assert np.abs(part - expected).mean() < MOST, "run `python -m tools.strip_picture`"
