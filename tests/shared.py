"""Where the real photos and the odd images are: beside this checkout, or where TEST_DATA says."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
PHOTOS = SHARED / "photos"
ODD = SHARED / "odd"
IMAGENETTE = SHARED / "imagenette"
