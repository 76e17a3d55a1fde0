"""Large AVIFs are grids of cells, which readers show as one image."""

import itertools
from io import BytesIO

import numpy as np
import PIL.Image
import pytest

from models import codec
from models.codec import Encoding, ImageFormat, avif_grid
from models.codec.avif_grid import GridLayout
from models.codec.formats import ENCODABLE
from models.domain.image import Image, Pixels

pytestmark = pytest.mark.skipif(ImageFormat.AVIF not in ENCODABLE, reason="no AVIF encoder")


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avif_grid, "WHOLE", 100 * 100)
    monkeypatch.setattr(avif_grid, "SIDE", 80)


def picture(height: int, width: int, channels: int) -> Pixels:
    """Return gradients whose corners differ, so that a cell in a wrong place is seen."""
    down, across = np.mgrid[0:height, 0:width]
    planes = [255 * down / height, 255 * across / width, (down + across) % 200, 40 + across % 160]
    return np.stack(planes[:channels], axis=2).astype(np.uint8)


def read(file: bytes) -> Pixels:
    """Return the pixels as the service reads them, which are those that Pillow reads."""
    image = codec.decode(file, max_pixels=1 << 20).image
    assert isinstance(image, Image)
    with PIL.Image.open(BytesIO(file)) as opened:
        assert np.array_equal(np.asarray(opened).reshape(image.pixels.shape), image.pixels)
    return image.pixels


def distance(one: Pixels, other: Pixels) -> float:
    return float(np.abs(one.astype(int) - other).mean())


def test_a_grid_shows_the_image() -> None:
    for channels, size in itertools.product(
        [1, 3, 4], [(200, 300), (201, 300), (200, 301), (140, 400), (1000, 70)]
    ):
        pixels = picture(*size, channels)
        file = codec.encode(Image(pixels), ImageFormat.AVIF, Encoding(quality=90))
        assert b"grid" in file
        found = read(file)
        shown = found if channels > 1 else found[:, :, :1]
        assert shown.shape == pixels.shape
        assert distance(shown, pixels) < 3


@pytest.mark.parametrize("chroma", ["444", "422", "420"])
def test_each_cell_has_the_pixels_that_it_has_alone(chroma: codec.Chroma) -> None:
    pixels = picture(160, 240, 3)
    options = Encoding(quality=60, chroma=chroma)
    found = read(codec.encode(Image(pixels), ImageFormat.AVIF, options))
    layout = GridLayout(160, 240)
    assert (layout.rows, layout.columns, layout.height, layout.width) == (2, 3, 80, 80)
    for number, cell in enumerate(layout.cells(pixels)):
        top, left = 80 * (number // 3), 80 * (number % 3)
        alone = read(codec.encode(Image(cell), ImageFormat.AVIF, options))
        shown = found[top : top + 80, left : left + 80]
        # Readers interpolate subsampled chroma over the edges of cells.
        inside = slice(None) if chroma == "444" else slice(1, -1)
        assert np.array_equal(shown[inside, inside], alone[inside, inside])


def test_opaque_alpha_is_left_out() -> None:
    pixels = picture(200, 200, 4)
    pixels[:, :, 3] = 255
    assert read(codec.encode(Image(pixels), ImageFormat.AVIF)).shape == (200, 200, 3)


def test_alpha_that_is_opaque_in_some_cells_is_kept() -> None:
    pixels = picture(200, 200, 4)
    pixels[:100, :, 3] = 255
    pixels[100:, :, 3] = 10
    found = read(codec.encode(Image(pixels), ImageFormat.AVIF))
    assert distance(found[:, :, 3], pixels[:, :, 3]) < 2


def test_metadata_is_that_of_a_whole_image(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image(picture(160, 160, 3))
    grid = codec.encode(image, ImageFormat.AVIF, copyright="© someone")
    monkeypatch.setattr(avif_grid, "WHOLE", 1 << 30)
    whole = codec.encode(image, ImageFormat.AVIF, copyright="© someone")
    of_grid, of_whole = (codec.decode(each, max_pixels=1 << 20) for each in (grid, whole))
    assert of_grid.copyright == of_whole.copyright == "© someone"
    assert of_grid.exif == of_whole.exif
    assert of_grid.info == of_whole.info
