"""Crop an upright image to the input of a network, bit-equal to the evaluation pipelines of
torchvision and timm on Pillow images.

Normalisation happens later, where the tensors are.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from models.codec import flatten
from models.domain.image import Image, Pixels
from models.networks.spec import Interpolation, Preprocessing

MAX_ASPECT = 8
"""Images longer than this, in sides, are resampled in the crop's window alone.

Resized whole, a 65500 × 1 image would take 12 GB.
"""

STRIPE = 1 << 22
"""Pixels that are resized at a time. Ordinary photos have fewer and take one step."""

_PRECISION_BITS = 22

_RESAMPLING = {
    Interpolation.BILINEAR: PillowImage.Resampling.BILINEAR,
    Interpolation.BICUBIC: PillowImage.Resampling.BICUBIC,
}


def crop(image: Image, spec: Preprocessing) -> Pixels:
    """Return the centre crop after the resize, uint8 (crop, crop, 3)."""
    height, width = image.height, image.width
    out_h, out_w, top, left = geometry(height, width, spec)
    if max(height, width) > MAX_ASPECT * min(height, width):
        rows = _Window(0, height, out_h, top, spec.crop, spec.interpolation)
        columns = _Window(1, width, out_w, left, spec.crop, spec.interpolation)
        # The first pass makes as many lines as it is given: 1 × 50 million pixels would take 34 GB.
        pixels = flatten(Image(image.pixels[rows.needed, columns.needed])).pixels
        first_rows = columns_first((height, width), (out_h, out_w))
        for each in (rows, columns) if first_rows else (columns, rows):
            pixels = each.resampled(pixels)
        return pixels
    method = _RESAMPLING[spec.interpolation]
    if height * width > STRIPE:
        axis = 0 if columns_first((height, width), (out_h, out_w)) else 1
        pixels = _resized_along(image, axis, (out_h, out_w)[axis], method)
    else:
        pixels = flatten(image).pixels
    resized = PillowImage.fromarray(pixels).resize((out_w, out_h), method)
    return np.array(resized.crop((left, top, left + spec.crop, top + spec.crop)))


def _resized_along(image: Image, axis: int, size: int, method: PillowImage.Resampling) -> Pixels:
    """Return the image in RGB with `size` rows (axis 0) or columns: Pillow's first pass of two.

    Each column, or row, is resized by itself, so stripes of them give the same bytes. Pillow would
    copy the whole image, in 4 bytes for each pixel.
    """
    step = max(1, STRIPE // image.pixels.shape[axis])
    resized = []
    for start in range(0, image.pixels.shape[1 - axis], step):
        part = slice(start, start + step)
        stripe = flatten(Image(image.pixels[part] if axis else image.pixels[:, part])).pixels
        height, width = stripe.shape[:2]
        goes = (size, height) if axis else (width, size)
        made = PillowImage.fromarray(stripe).resize(goes, method)
        resized.append(np.asarray(made))
    return np.concatenate(resized, 1 - axis)


def geometry(height: int, width: int, spec: Preprocessing) -> tuple[int, int, int, int]:
    """Return height and width after the resize, then top and left of the crop in it, in pixels.

    The sizes equal those of torchvision's `ImageClassification` transform: the long side is
    `int(resize * long / short)`, and the crop's corner is `int(round((side - crop) / 2))`.
    """
    if spec.squash:
        out_h = out_w = spec.resize
    elif height <= width:
        out_h, out_w = spec.resize, int(spec.resize * width / height)
    else:
        out_h, out_w = int(spec.resize * height / width), spec.resize
    return out_h, out_w, round((out_h - spec.crop) / 2), round((out_w - spec.crop) / 2)


def columns_first(size: tuple[int, int], resized: tuple[int, int]) -> bool:
    """Return whether Pillow resamples columns before rows, which gives other bytes.

    Both sizes are (height, width) in pixels. Pillow does so if an image loses rows, and more than
    twice as many as columns.
    """
    return size[0] - resized[0] > max(0, 2 * (size[1] - resized[1]))


@dataclass(frozen=True, slots=True)
class _Window:
    """Outputs `start … start + count` of Pillow's integer resize of an axis.

    The axis has `n_in` pixels before and `n_out` after. The filter is antialiased, with weights in
    22-bit fixed point, as in Pillow's libImaging/Resample.c.
    """

    axis: int
    n_in: int
    n_out: int
    start: int
    count: int
    interpolation: Interpolation

    @property
    def needed(self) -> slice:
        """Return the inputs that have a part in the outputs."""
        if self.n_in == self.n_out:
            return slice(self.start, self.start + self.count)
        return slice(self._taps(self.start)[0], self._taps(self.start + self.count - 1)[1])

    def resampled(self, pixels: Pixels) -> Pixels:
        """Return the outputs; of this axis `pixels` has the `needed` inputs alone."""
        if self.n_in == self.n_out:
            return pixels
        offset = self.needed.start
        lines = []
        for position in range(self.start, self.start + self.count):
            low, high = self._taps(position)
            weights = self._weights(low, high, (position + 0.5) * self._scale)
            there = pixels.take(range(low - offset, high - offset), self.axis)
            taps = np.moveaxis(there, self.axis, -1).astype(np.int64)
            total = taps @ weights + (1 << (_PRECISION_BITS - 1))
            lines.append(np.clip(total >> _PRECISION_BITS, 0, 255).astype(np.uint8))
        return np.ascontiguousarray(np.stack(lines, self.axis))

    def _taps(self, position: int) -> tuple[int, int]:
        """Return the first input of an output, and the one behind its last."""
        # The same float64 expressions in the same order as precompute_coeffs in Resample.c: another
        # order could move a bound by one sample.
        centre = (position + 0.5) * self._scale
        low = max(int(centre - self._support + 0.5), 0)
        return low, min(int(centre + self._support + 0.5), self.n_in)

    @property
    def _scale(self) -> float:
        return self.n_in / self.n_out

    @property
    def _support(self) -> float:
        return self.interpolation * max(self._scale, 1.0)

    def _weights(self, low: int, high: int, centre: float) -> NDArray[np.int64]:
        x = np.abs((np.arange(low, high) - centre + 0.5) * (1.0 / max(self._scale, 1.0)))
        if self.interpolation is Interpolation.BILINEAR:
            shares = np.maximum(0.0, 1.0 - x)
        else:
            near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
            shares = np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
        # Pillow adds the shares one after the other.
        scaled = shares / np.cumsum(shares)[-1] * (1 << _PRECISION_BITS)
        fixed: NDArray[np.int64] = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64)
        return fixed
