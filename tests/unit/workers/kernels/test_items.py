"""The grids of kernels, read from their text, and the bytes that a filter uploads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.filters.registry import FILTERS, parse_one
from workers.kernels import items
from workers.kernels.items import Grid, grid_of


def test_what_is_uploaded_for_an_image_lets_hundreds_share_a_slot() -> None:
    for name in [name for name, each in FILTERS.items() if each.passes]:
        filter_ = parse_one(name, {k: v for k, v in FILTERS[name].example.items() if k != "name"})
        assert len(filter_.device_data((4000, 6000, 3))) <= 8192


TEXT = """
constexpr int WIDTH = 64, HEIGHT = 2 *
    WIDTH - 8;  // pixels, HEIGHT = 3
constexpr u32 LINE = (3 + 1) * HEIGHT / 7;
constexpr int SIZED = sizeof(int);
LAUNCHED_BY_TILES(tiled, WIDTH, HEIGHT);
LAUNCHED_BY_LINES(lined, 8 * LINE);
LAUNCHED_BY_BLOCKS(fixed, 16);
LAUNCHED_BY_TILES(sized, SIZED, 4);
LAUNCHED_BY_TILES(unknown, 64, OTHER);
"""


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "one.cu").write_text(TEXT)
    monkeypatch.setattr(items, "_FOLDER", tmp_path)
    _forget()
    yield
    _forget()


def _forget() -> None:
    grid_of.cache_clear()
    items._declarations.cache_clear()


@pytest.mark.parametrize(
    ("kernel", "grid"),
    [
        ("tiled", Grid(64, 120)),
        ("lined", Grid(8 * 68, flat=True)),
        ("fixed", Grid(each=16)),
    ],
)
@pytest.mark.usefixtures("text")
def test_a_grid_is_computed_from_the_constants_of_the_text(kernel: str, grid: Grid) -> None:
    assert grid_of(kernel) == grid


@pytest.mark.parametrize(
    ("kernel", "named"),
    [("missing", "the kernel missing states no grid"), ("sized", "sizeof"), ("unknown", "OTHER")],
)
@pytest.mark.usefixtures("text")
def test_a_grid_that_is_missing_or_cannot_be_computed_is_named(kernel: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        grid_of(kernel)
