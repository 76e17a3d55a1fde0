"""The folder of the real photos and the odd images: beside this checkout, or at TEST_DATA."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
PHOTOS = SHARED / "photos"
ODD = SHARED / "odd"
IMAGENETTE = SHARED / "imagenette"
