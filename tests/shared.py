"""The folder of the real photos and the odd images: beside this checkout, or at TEST_DATA."""

import os
import tarfile
from pathlib import Path

SHARED = Path(os.environ.get("TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
PHOTOS = SHARED / "photos"
ODD = SHARED / "odd"
IMAGENETTE = SHARED / "imagenette"


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the bytes of a file in an archive; a folder fails the test."""
    file = archive.extractfile(member)
    assert file is not None, member.name
    return file.read()
