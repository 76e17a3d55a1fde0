"""Places and scores of templates, against the formula in float64 and the rule place by place."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from models.domain.deadline import NEVER, Deadline
from models.domain.errors import DeadlineExceeded
from models.domain.job import Match
from workers.filters import templates
from workers.filters.marks import picture_of
from workers.filters.templates import Grey, matches


def expected(image: Grey, template: Grey, k: int, threshold: float) -> list[Match]:
    height, width = template.shape
    windows = sliding_window_view(image.astype(float), template.shape)
    windows = windows - windows.mean((2, 3), keepdims=True)
    centred = template - template.mean()
    lengths = np.sqrt((windows**2).sum((2, 3)) * (centred**2).sum())
    scores = (windows * centred).sum((2, 3)) / np.maximum(lengths, 1e-9)
    found: list[Match] = []
    for place in np.argsort(-scores.round(6), None, "stable"):
        y, x = (int(each) for each in np.unravel_index(place, scores.shape))
        near = any(2 * abs(y - m.y) < height and 2 * abs(x - m.x) < width for m in found)
        if len(found) < k and scores[y, x] >= threshold and not near:
            found.append(Match(x, y, width, height, float(scores[y, x])))
    return found


def noise(rows: int, columns: int) -> Grey:
    return np.random.default_rng(rows).integers(0, 256, (rows, columns)).astype(np.uint8)


def scan() -> Grey:
    """Return paper with a few specks, beside dark print: OpenCV's scores of uint8 are wrong."""
    page = np.full((70, 90), 250, np.uint8)
    page[10:30, 20:60], page[::9, ::7], page[60:66, 80:84] = noise(20, 40), 249, [[9, 0, 0, 200]]
    return page


@pytest.mark.parametrize(
    ("image", "at", "shape"),
    [
        (noise(40, 60), (7, 9), (6, 7)),
        (np.tile(noise(12, 15), (4, 4)), (2, 3), (6, 8)),  # 16 places of the same score
        (noise(30, 33), (0, 0), (30, 33)),
        (noise(30, 33), (4, 0), (1, 33)),
        (scan(), (40, 30), (20, 25)),
        (scan(), (58, 76), (9, 9)),
    ],
)
@pytest.mark.parametrize(("k", "threshold"), [(1, 0.9), (12, 0.9), (40, -1)])
def test_places_and_scores_are_those_of_the_formula(
    image: Grey,
    at: tuple[int, int],
    shape: tuple[int, int],
    k: int,
    threshold: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (y, x), (height, width) = at, shape
    template = image[y : y + height, x : x + width]
    monkeypatch.setattr(templates, "TILE", 6 * template.size)  # many tiles of a small image
    found = matches(image, picture_of(template[..., None]), k, threshold, NEVER)
    wanted = expected(image, template, k, threshold)
    assert [(m.x, m.y) for m in found] == [(m.x, m.y) for m in wanted]
    assert [m.score for m in found] == pytest.approx([m.score for m in wanted], abs=1e-6)


def test_a_search_ends_at_the_deadline() -> None:
    with pytest.raises(DeadlineExceeded):
        matches(noise(40, 40), picture_of(noise(5, 5)[..., None]), 1, 0.5, Deadline(0))
