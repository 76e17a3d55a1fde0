"""A decoded image on its way through the pipeline, which lets go of its pixels early."""

from copy import copy

from models.codec import Decoded, ImageInfo
from models.domain.image import Jpeg, Source


class HeldImage:
    """The pixels of an image and what its file contained beside them.

    A filtered image is encoded without its source. The last user of the pixels takes them away, so
    that they do not stay in memory until the answer is complete. `info`, `copyright` and `exif` are
    as in `models.codec.Decoded`.
    """

    __slots__ = ("_image", "channels", "copyright", "exif", "height", "info", "width")

    def __init__(self, decoded: Decoded) -> None:
        self._image: Source | None = decoded.image
        self.height, self.width = decoded.image.height, decoded.image.width
        self.channels = decoded.image.channels
        self.info: ImageInfo = decoded.info
        self.copyright = decoded.copyright
        self.exif = decoded.exif

    @property
    def encoded(self) -> bool:
        """Return whether the image is a JPEG that the device will decode."""
        return isinstance(self._image, Jpeg)

    def result(self, image: Source) -> "HeldImage":
        """Return what filters made of this image: other pixels of the same file."""
        held = copy(self)
        held._image = image
        held.height, held.width, held.channels = image.height, image.width, image.channels
        return held

    def image(self, *, last: bool = False) -> Source:
        """Return the pixels; the `last` user takes them away."""
        image = self._image
        assert image is not None, "the pixels were taken away before"
        if last:
            self._image = None
        return image
