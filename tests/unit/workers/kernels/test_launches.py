"""The grids of kernels, read from their text."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.kernels import launches
from workers.kernels.launches import Grid, grid_of

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


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "one.cu").write_text(TEXT)
    monkeypatch.setattr(launches, "_FOLDER", tmp_path)
    _forget()
    yield
    _forget()


def _forget() -> None:
    grid_of.cache_clear()
    launches._declarations.cache_clear()


@pytest.mark.parametrize(
    ("kernel", "grid"),
    [
        ("tiled", Grid(64, 120)),
        ("lined", Grid(8 * 68, flat=True)),
        ("fixed", Grid(each=16)),
    ],
)
def test_a_grid_is_computed_from_the_constants_of_the_text(kernel: str, grid: Grid) -> None:
    assert grid_of(kernel) == grid


def test_a_kernel_without_a_grid_is_named() -> None:
    with pytest.raises(ValueError, match="the kernel missing states no grid"):
        grid_of("missing")


@pytest.mark.parametrize(("kernel", "named"), [("sized", "sizeof"), ("unknown", "OTHER")])
def test_a_number_that_cannot_be_computed_is_named(kernel: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        grid_of(kernel)
