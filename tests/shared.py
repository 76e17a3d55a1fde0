"""Where the real photos and the odd images are, when this checkout has them beside it."""

from pathlib import Path

SHARED = Path(__file__).parents[2] / "shared" / "data"
PHOTOS = SHARED / "photos"
ODD = SHARED / "odd"
IMAGENETTE = SHARED / "imagenette"
