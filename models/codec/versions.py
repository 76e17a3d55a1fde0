"""The versions of the libraries and of our own code that read and write image files."""

import functools
from collections.abc import Mapping

import simplejpeg
from PIL import features

from models.codec.encoding import avif_grid

_FEATURES = ("pil", "libjpeg_turbo", "zlib", "zlib_ng", "libtiff", "webp", "avif", "littlecms2")


@functools.cache
def codec_versions() -> Mapping[str, str | None]:
    """Return the version of each library by its name, None for those that are missing, and how
    AVIF grids are written.

    Another version of an encoder may write other bytes for the same pixels.
    """
    found = {name: features.version(name) for name in _FEATURES}
    return {**found, "simplejpeg": simplejpeg.__version__, "avif_grid": avif_grid.FORM}
