"""Filters that move pixels or change the size of an image."""

import math
import struct
from dataclasses import dataclass
from typing import ClassVar, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from models.codec.encoder import flatten
from models.domain import image as domain
from models.domain.errors import InvalidParameter
from models.domain.image import Pixels
from workers.filters.arithmetic.colour import luma
from workers.filters.arithmetic.sums import OPENCV, Border
from workers.filters.base import WITH_ALPHA, Filter, HexColour, HexColourAlpha, colour, number, rgba
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Pass, Shape
from workers.preprocess import columns_first


class Flip(Filter):
    """Mirror the image."""

    direction: Literal["horizontal", "vertical"] = Field(
        "horizontal", description="horizontal swaps left and right, vertical swaps top and bottom"
    )

    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    passes: ClassVar = (Pass("flip"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `ImageOps.mirror` or `ImageOps.flip` of uint8 (H, W, C)."""
        turned = cv2.flip(np.ascontiguousarray(pixels), int(self.direction == "horizontal"))
        return np.asarray(turned, pixels.dtype).reshape(pixels.shape)

    def device_data(self, _shape: Shape) -> bytes:
        """Return two int32 flags: whether columns, and whether rows, change places."""
        across = self.direction == "horizontal"
        return struct.pack("<2i", across, not across)


_TURNS = {
    1: cv2.ROTATE_90_CLOCKWISE,
    2: cv2.ROTATE_180,
    3: cv2.ROTATE_90_COUNTERCLOCKWISE,
}


class Rotate90(Filter):
    """Turn the image clockwise by quarter turns; an odd number of them swaps its sides."""

    turns: int = number(1, 0, 3, "quarter turn", "quarter turns, clockwise")

    example: ClassVar = {"turns": 1}
    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    result_shape: ClassVar = "turned"
    passes: ClassVar = (Pass("flip"), Pass("rotate90"))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `Image.transpose` of uint8 (H, W, C); samples only move."""
        source = np.ascontiguousarray(pixels)
        if self.turns == 0:
            return source.copy()
        turned = cv2.rotate(source, _TURNS[self.turns])
        return np.asarray(turned, source.dtype).reshape(self.shape_after(source.shape))

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the pass that turns for odd numbers of turns, else the one that mirrors."""
        return (self.passes[self.turns % 2],)

    def device_data(self, _shape: Shape) -> bytes:
        """Return int32 flags: to turn clockwise, or to mirror columns and rows."""
        if self.turns % 2:
            return struct.pack("<i", self.turns == 1)
        return struct.pack("<2i", self.turns == 2, self.turns == 2)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width in pixels; every quarter turn swaps them."""
        return (width, height) if self.turns % 2 else (height, width)


_AFFINE = Image.Transform.AFFINE

_WHOLE_TURNS = {0.0: 0, 90.0: 3, 180.0: 2, 270.0: 1}
"""Quarter turns clockwise by Pillow's angle, which is in degrees counterclockwise."""


class Rotate(Filter):
    """Turn the image clockwise by any angle; with `expand`, quarter turns only move its pixels."""

    degrees: float = number(0, -360, 360, "degree", "angle, clockwise")
    expand: bool = Field(
        True, description="true: the result holds the whole image; false: it has the image's size"
    )
    method: Literal["bilinear", "bicubic"] = Field("bicubic", description="interpolation method")
    background: HexColourAlpha = colour(
        "00000000",
        "colour around the image; its opacity counts if the image has alpha",
        WITH_ALPHA,
    )

    example: ClassVar = {"degrees": 15, "background": "ff8800"}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "replicate, then background"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (Pass("rotate", of_result=True),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `Image.rotate(-degrees)`, uint8 (h, w, C).

        Pillow interpolates each channel in float64 and truncates (libImaging/Geometry.c). Channels
        are turned one by one, because Pillow's pictures in colour take four times the memory. The
        background of an image with alpha is premultiplied, as its colours are.
        """
        turns = self._whole_turns(pixels.shape)
        if turns is not None:
            return Rotate90(turns=turns).apply(pixels)
        size, matrix = self._mapping(pixels.shape)
        channels, fill = pixels.shape[2], self._fill(pixels.shape[2]).tolist()
        result, step = np.empty((*size, channels), np.uint8), size[0] // 8 + 1
        for channel in range(channels):
            stop_if_late()
            plane = pixels[:, :, channel]
            if channels == 4 and channel < 3:
                plane = _times(plane, pixels[:, :, 3])
            turned = Image.fromarray(np.ascontiguousarray(plane)).transform(
                size[::-1], _AFFINE, matrix, _METHODS[self.method], fillcolor=fill[channel]
            )
            for top in range(0, size[0], step):  # reading takes three times the bytes of its rows
                rows = result[top : top + step]
                read = turned.crop((0, top, size[1], top + len(rows)))
                rows[:, :, channel] = np.asarray(read)
        for top in range(0, size[0] if channels == 4 else 0, step):
            rows = result[top : top + step]
            image = Image.frombuffer("RGBa", rows.shape[1::-1], rows, "raw", "RGBa", 0, 1)
            rows[:] = np.asarray(image.convert("RGBA"))
        return result

    def memory(self, shape: Shape) -> int:
        """Return the bytes of planes of the source, of the result and of reading it, measured."""
        source, result = (h * w for h, w, _ in (shape, self.shape_after(shape)))
        return (4 if shape[2] == 4 else 1) * source + (shape[2] + 2) * result

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Rotate`."""
        (height, width), matrix = self._mapping(shape)
        fill = self._fill(shape[2]).tobytes().ljust(4, b"\0")
        straight = self._whole_turns(shape) is not None
        sizes = struct.pack("<6d2i", *matrix, width, height)
        return sizes + fill + struct.pack("<2i4x", self.method == "bicubic", straight)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the result, in pixels."""
        return self._mapping((height, width, 1))[0]

    def _fill(self, channels: int) -> Pixels:
        """Return the background as `level_of` does, premultiplied as by Pillow."""
        colour = level_of(self.background, channels)
        if channels == 4:
            colour[:3] = _times(colour[:3], colour[3:])
        return colour

    def _whole_turns(self, shape: Shape) -> int | None:
        """Return the clockwise quarter turns that Pillow makes by moving pixels only, or None."""
        turns = _WHOLE_TURNS.get(-self.degrees % 360)
        moves = turns in (0, 2) or self.expand or shape[0] == shape[1]
        return turns if moves else None

    def _mapping(self, shape: Shape) -> tuple[tuple[int, int], tuple[float, ...]]:
        """Return height and width of the result, and the matrix from there to the source.

        They are those of Pillow's `Image.rotate`, computed in the same order.
        """
        height, width, _ = shape
        angle = -math.radians(-self.degrees % 360)
        cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)

        def mapped(x: float, y: float, left: float, top: float) -> tuple[float, float]:
            return cos * x + sin * y + left, -sin * x + cos * y + top

        left, top = mapped(-width / 2, -height / 2, 0, 0)
        left, top = left + width / 2, top + height / 2
        rows, columns = height, width
        if (turns := self._whole_turns(shape)) is not None:
            rows, columns = (width, height) if turns % 2 else (height, width)
        elif self.expand:
            corners = [mapped(x, y, left, top) for x in (0, width) for y in (0, height)]
            columns, rows = (
                math.ceil(max(places)) - math.floor(min(places))
                for places in zip(*corners, strict=True)
            )
        left, top = mapped(-(columns - width) / 2, -(rows - height) / 2, left, top)
        return (rows, columns), (cos, sin, left, -sin, cos, top)


def _times(plane: Pixels, alpha: Pixels) -> Pixels:
    """Return plane · alpha / 255 as Pillow rounds it (MULDIV255), uint8 of the same shape."""
    product = np.multiply(plane, alpha, dtype=np.uint16)
    product += 128
    product += product >> 8
    product >>= 8
    return product.astype(np.uint8)


class Crop(Filter):
    """Cut out a rectangle."""

    left: int = number(0, 0, 200_000_000, "px", "columns cut off at the left")
    top: int = number(0, 0, 200_000_000, "px", "rows cut off at the top")
    width: int | None = number(None, 1, 200_000_000, "px", "columns kept; all if left out")
    height: int | None = number(None, 1, 200_000_000, "px", "rows kept; all if left out")

    example: ClassVar = {"left": 8, "top": 4, "width": 54, "height": 40}
    alpha_rule: ClassVar = "plane"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (Pass("copy_window", of_result=True),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the rectangle, uint8 (h, w, C); samples keep their values.

        Raises InvalidParameter if the rectangle does not lie inside the image.
        """
        height, width = self.size_after(*pixels.shape[:2])
        kept = pixels[self.top : self.top + height, self.left : self.left + width]
        return np.array(kept, order="C")

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the rectangle.

        Raises InvalidParameter if the rectangle leaves the image.
        """
        return math.prod(self.shape_after(shape))

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Window`, which lies inside the image."""
        height, width = self.size_after(*shape[:2])
        return struct.pack("<6i", self.left, self.top, width, height, 0, 0)

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the rectangle, in pixels.

        Raises InvalidParameter if the rectangle leaves the image.
        """
        rows = height - self.top if self.height is None else self.height
        columns = width - self.left if self.width is None else self.width
        if min(rows, columns) < 1 or self.top + rows > height or self.left + columns > width:
            asked = f"{max(columns, 1)} × {max(rows, 1)} pixels from ({self.left}, {self.top}) on"
            raise InvalidParameter(f"crop: {asked} leave an image of {width} × {height} pixels")
        return rows, columns


class Trim(Filter):
    """Cut away the border of one colour; an image that is all border stays as it is."""

    background: HexColourAlpha | None = colour(
        None, "colour of the border; if left out, that of the top left pixel", WITH_ALPHA
    )
    threshold: int = number(10, 0, 255, "level", "largest distance from that colour in a channel")

    example: ClassVar = {"threshold": 160}
    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (4, 8)
    result_shape: ClassVar = "resized"

    @property
    def measures(self) -> bool:
        """Return True: the border follows from the pixels."""
        return True

    def measured(self, pixels: Pixels) -> Crop:
        """Return the crop to the smallest rectangle that holds all pixels but the border.

        As in libvips' find_trim, a pixel of the rectangle differs by more than the threshold in a
        channel. Colours are compared as multiplied by alpha: transparent pixels are equal. An image
        that is all border is kept, because no image has no pixels.
        """
        channels = pixels.shape[2]
        if self.background is None:
            levels = pixels[0, 0].copy()
        else:
            levels = level_of(self.background, channels)[:channels]
        if channels == 4:
            levels[:3] = _times(levels[:3], levels[3:])
        kept = np.zeros(pixels.shape[:2], bool)
        for channel, level in enumerate(levels.tolist()):
            plane = pixels[:, :, channel]
            if channels == 4 and channel < 3:
                plane = _times(plane, pixels[:, :, 3])
            kept |= plane > level + self.threshold
            kept |= plane < level - self.threshold
        left, top, width, height = cv2.boundingRect(kept.view(np.uint8))
        return Crop(left=left, top=top, width=width or None, height=height or None)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the rectangle, uint8 (h, w, C); samples keep their values."""
        return self.measured(pixels).apply(pixels)


class Pad(Filter):
    """Add rows and columns around the image."""

    left: int = number(0, 0, 10_000, "px", "columns added")
    top: int = number(0, 0, 10_000, "px", "rows added")
    right: int = number(0, 0, 10_000, "px", "columns added")
    bottom: int = number(0, 0, 10_000, "px", "rows added")
    border_mode: Border = Field(
        "constant",
        description="content of the border: constant is the background, others continue the image",
    )
    background: HexColourAlpha = colour(
        "00000000",
        "colour of a constant border; its opacity counts if the image has alpha",
        WITH_ALPHA,
    )

    example: ClassVar = {"left": 20, "right": 20, "border_mode": "mirror"}
    alpha_rule: ClassVar = "plane"
    cpu_bytes_per_pixel: ClassVar = (3, 4)
    border: ClassVar = "border_mode"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (Pass("copy_window", of_result=True),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.copyMakeBorder` (equal to `numpy.pad`), uint8 (h, w, C).

        A grey image gets the luma of the background.
        """
        padded = cv2.copyMakeBorder(
            np.ascontiguousarray(pixels),
            self.top,
            self.bottom,
            self.left,
            self.right,
            OPENCV[self.border_mode],
            value=level_of(self.background, pixels.shape[2]).tolist(),
        )
        return np.asarray(padded, np.uint8).reshape(self.shape_after(pixels.shape))

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Window`, which is larger than the image."""
        height, width = self.size_after(*shape[:2])
        border = [*OPENCV].index(self.border_mode)
        window = struct.pack("<5i", -self.left, -self.top, width, height, border)
        return window + level_of(self.background, shape[2]).tobytes().ljust(4, b"\0")

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width including the added rows and columns, in pixels."""
        return self.top + height + self.bottom, self.left + width + self.right


def level_of(background: str, channels: int) -> Pixels:
    """Return a colour as uint8: a sample for a grey image, its luma, else four."""
    colour = np.array(rgba(background), np.uint8)
    return colour if channels > 1 else luma(colour.reshape(1, 1, 4)).ravel()


class RoundCorners(Filter):
    """Make the corners transparent outside of quarter circles; the result has alpha."""

    radius: int = number(
        16, 1, 32_768, "px", "radius of the circles; at most half of the shorter side is used"
    )

    example: ClassVar = {"radius": 30}
    alpha_rule: ClassVar = "shape"
    cpu_bytes_per_pixel: ClassVar = (7, 7)
    result_shape: ClassVar = "alpha"
    passes: ClassVar = (Pass("round_corners"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return uint8 (H, W, 4): alpha · n / 64 to the nearest, halves up.

        n of 8 × 8 places of a pixel, in the middles of its squares, lie inside the circle of their
        corner or on it; away from corners all do.
        """
        height, width, channels = pixels.shape
        result = np.empty((height, width, 4), np.uint8)
        result[:, :, :3] = pixels[:, :, :3]
        result[:, :, 3] = pixels[:, :, 3] if channels == 4 else 255
        radius = self._used(pixels.shape)
        # Places are odd numbers of sixteenths of a pixel from the middle of the circle.
        squares = np.arange(16 * radius - 1, 0, -2, dtype=np.int64) ** 2
        for row in range(radius):
            stop_if_late()
            beside = (16 * radius) ** 2 - squares[8 * row : 8 * row + 8, None]
            inside = (squares <= beside).reshape(8, radius, 8).sum((0, 2), dtype=np.int64)
            for line in (row, height - 1 - row):
                for alpha in (result[line, :radius, 3], result[line, ::-1][:radius, 3]):
                    alpha[:] = (alpha * inside + 32) // 64
        return result

    def device_data(self, shape: Shape) -> bytes:
        """Return the radius that is used, int32."""
        return struct.pack("<i", self._used(shape))

    def _used(self, shape: Shape) -> int:
        """Return the radius, at most half of the shorter side."""
        return min(self.radius, min(shape[:2]) // 2)


class Composite(Filter):
    """Lay the image over a colour that shows where it is transparent; the result is opaque."""

    background: HexColour = colour("ffffff", "colour behind the image")

    example: ClassVar = {"background": "ff8800"}
    alpha_rule: ClassVar = "drop"
    row_reach: ClassVar = 0
    result_shape: ClassVar = "no alpha"
    passes: ClassVar = (Pass("composite"),)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return (c·a + b·(255 - a)) / 255 to the nearest, uint8 (H, W, 1 or 3).

        This equals Pillow's `alpha_composite` (libImaging/AlphaComposite.c) over an opaque colour.
        """
        if pixels.shape[2] < 4:
            return np.array(pixels, order="C")
        behind = rgba(self.background)[:3]
        return np.ascontiguousarray(
            flatten(domain.Image(np.ascontiguousarray(pixels)), behind).pixels
        )

    def device_data(self, _shape: Shape) -> bytes:
        """Return the colour in four bytes: red, green, blue, opacity."""
        return bytes(rgba(self.background))


# Resize large images stripe by stripe, with the bytes of Pillow's resize of the whole image.
# Pillow's pictures take 4 bytes for each pixel, and reading one into an array takes 6 more:
# enlarging to 49 megapixels took 490 MB. In stripes the arrays and a few megabytes are enough:
# 158 MB.

STRIPE = 1 << 20
"""Pixels of a stripe, before or after its resize, whichever are more."""

STRIPE_BYTES = 24 * STRIPE
"""Bytes that the work on a stripe takes at most, measured: two arrays and three pictures."""

PILLOW = 4
"""Bytes per pixel of Pillow's pictures in colour."""

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of the part of the source that is resized, in pixels."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """The resampling of an axis (0: rows, 1: columns) to `size` pixels from `low` to `high`."""

    axis: int
    size: int
    low: float
    high: float

    def is_needed(self, shape: Shape) -> bool:
        return self.size != shape[self.axis] or (self.low, self.high) != (0, self.size)

    def shape_after(self, shape: Shape) -> Shape:
        height, width, channels = shape
        return (height, self.size, channels) if self.axis else (self.size, width, channels)

    def apply(
        self, pixels: Pixels, method: Image.Resampling, modes: tuple[str, str, str]
    ) -> Pixels:
        """Return the resampled array; raises DeadlineExceeded between stripes.

        `modes` are Pillow's modes of the input, of the resampling and of the result.
        """
        came, during, goes = modes
        result = np.empty(self.shape_after(pixels.shape), pixels.dtype)
        lines = pixels.shape[1 - self.axis]
        step = max(1, STRIPE // max(pixels.shape[self.axis], self.size))
        for start in range(0, lines, step):
            stop_if_late()
            part = slice(start, start + step)
            at = (part, slice(None)) if self.axis else (slice(None), part)
            stripe = np.ascontiguousarray(pixels[at])
            height, width = stripe.shape[:2]
            image = Image.frombuffer(came, (width, height), stripe, "raw", came, 0, 1)
            size = (self.size, height) if self.axis else (width, self.size)
            box = (self.low, 0, self.high, height) if self.axis else (0, self.low, width, self.high)
            if came != during:
                image = image.convert(during)
            image = image.resize(size, method, box)
            if during != goes:
                image = image.convert(goes)
            result[at] = np.asarray(image).reshape(result[at].shape)
        return result


def resized(pixels: Pixels, size: tuple[int, int], method: Image.Resampling, box: Box) -> Pixels:
    """Return Pillow's `Image.resize` of the box of uint8 (H, W, C), axis by axis, or of float32
    (H, W, 1).

    `size` is (height, width). Pillow resamples an axis and rounds to bytes before the second axis
    (libImaging/Resample.c), and a line does not depend on its neighbours, so stripes of lines give
    the same bytes. Colours are multiplied by alpha before the first axis and divided after the
    second, as Pillow does for all methods but the nearest.
    """
    passes = _passes(pixels.shape, size, box)
    if not passes:
        return pixels.copy()
    mode = _MODES[pixels.shape[2]] if pixels.dtype == np.uint8 else "F"
    during = "RGBa" if mode == "RGBA" and method is not Image.Resampling.NEAREST else mode
    for index, each in enumerate(passes):
        first, last = index == 0, index == len(passes) - 1
        modes = mode if first else during, during, mode if last else during
        pixels = each.apply(pixels, method, modes)
    return pixels


def memory(shape: Shape, size: tuple[int, int], box: Box) -> int:
    """Return the bytes that `resized` takes at a time beside its input, by estimate."""
    arrays = [math.prod(each) for each in _shapes(shape, size, box)]
    return (sum(arrays) or math.prod(shape)) + STRIPE_BYTES


def memory_at_once(shape: Shape, size: tuple[int, int], box: Box) -> int:
    """Return the same of a single call of Pillow's resize, whose result is copied into an array.

    The call takes three pictures, and reading the last of them two copies of its samples.
    """
    height, width, channels = shape
    pixels = size[0] * size[1]
    between = max([h * w for h, w, _ in _shapes(shape, size, box)[:-1]], default=0)
    results = max(PILLOW * (between + pixels), (PILLOW + 2 * channels) * pixels)
    return PILLOW * height * width + results


def _shapes(shape: Shape, size: tuple[int, int], box: Box) -> list[Shape]:
    """Return the shapes after each pass that is needed."""
    shapes = []
    for each in _passes(shape, size, box):
        shape = each.shape_after(shape)
        shapes.append(shape)
    return shapes


def _passes(shape: Shape, size: tuple[int, int], box: Box) -> list[_Pass]:
    """Return the passes that are needed, in Pillow's order."""
    left, top, right, bottom = box
    down, across = _Pass(0, size[0], top, bottom), _Pass(1, size[1], left, right)
    order = (down, across) if columns_first(shape[:2], size) else (across, down)
    return [each for each in order if each.is_needed(shape)]


_METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

LARGE = 8 << 20
"""Pixels of the source or of the result from which an image is resized in stripes."""


class Resize(Filter):
    """Change the size; if width or height is left out, it follows from the other."""

    width: int | None = number(None, 1, 65_500, "px", "width of the result")
    height: int | None = number(None, 1, 65_500, "px", "height of the result")
    fit: Literal["contain", "cover", "fill"] = Field(
        "contain",
        description="contain: the whole image, within width and height; cover: exactly this size, "
        "the excess cut off; fill: exactly this size, stretched",
    )
    method: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(
        "bilinear", description="resampling method; all but nearest antialias"
    )
    enlarge: bool = Field(
        True, description="false: no side gets larger than the image's, except to a minimum size"
    )
    dpr: float = number(1, 1, 5, "ratio", "device pixel ratio: multiplies all asked sizes")
    min_width: int | None = number(
        None, 1, 65_500, "px", "least width of the result; contain keeps the image's proportions"
    )
    min_height: int | None = number(None, 1, 65_500, "px", "least height of the result, likewise")
    gravity: Literal[
        "center", "north", "northeast", "east", "southeast", "south", "southwest", "west",
        "northwest", "smart",
    ] = Field(
        "center",
        description="part that cover keeps; smart: that with most edges, strong colours and skin",
    )  # fmt: skip
    focus_x: float | None = number(
        None, 0, 1, "ratio", "share of the width around which cover keeps, in place of gravity"
    )
    focus_y: float | None = number(
        None, 0, 1, "ratio", "share of the height around which cover keeps, in place of gravity"
    )

    example: ClassVar = {"width": 90, "height": 90, "fit": "cover"}
    alpha_rule: ClassVar = "premul"
    border: ClassVar = "outside ignored"
    result_shape: ClassVar = "resized"
    passes: ClassVar = (Pass("resize_weights"), Pass("resize", of_result=True))

    def apply(self, pixels: Pixels) -> Pixels:
        """Return Pillow's `Image.resize`, to cover of the box of `ImageOps.fit`, uint8 (H, W, C).

        Pillow resamples with integer weights of 22 bits, along both axes in the order of
        `columns_first` (libImaging/Resample.c), and antialiases by widening its window when it
        shrinks. Large images are resized in stripes, with the same bytes. A plane of float32
        (H, W, 1) is resized in Pillow's mode F, without rounding.
        """
        if self.measures:
            return self.measured(pixels).apply(pixels)
        height, width = self.size_after(*pixels.shape[:2])
        method, box = _METHODS[self.method], self._box(pixels.shape, height, width)
        if self._is_large(pixels.shape):
            return resized(pixels, (height, width), method, box)
        source = np.ascontiguousarray(pixels)
        image = Image.fromarray(source[:, :, 0] if source.shape[2] == 1 else source)
        result = image.resize((width, height), method, box)
        return np.array(result).reshape(height, width, pixels.shape[2])

    def memory(self, shape: Shape) -> int:
        """Return the bytes that `apply` takes at a time beside its input, by estimate."""
        size = self.size_after(*shape[:2])
        box = self._box(shape, *size)
        if self._is_large(shape):
            return memory(shape, size, box)
        return memory_at_once(shape, size, box)

    @property
    def measures(self) -> bool:
        """Return whether cover keeps the part that the pixels choose."""
        return self.fit == "cover" and self.gravity == "smart"

    def measured(self, pixels: Pixels) -> "Resize":
        """Return the same resize with a focus in place of `smart`.

        Cover cuts along one axis only, so the scores of `_attention` are added up across it, and
        the window with the largest sum is kept: of equal windows, that in their middle.
        """
        if not self.measures:
            return self
        shape, scores = pixels.shape, _attention(pixels)
        left, top, right, bottom = self._box(shape, *self.size_after(*shape[:2]))
        focus = {
            "focus_x": _best(scores.sum(0), (right - left) / shape[1]),
            "focus_y": _best(scores.sum(1), (bottom - top) / shape[0]),
        }
        lacking = {name: share for name, share in focus.items() if getattr(self, name) is None}
        return self.model_copy(update=lacking | {"gravity": "center"})

    def _is_large(self, shape: Shape) -> bool:
        """Return whether source or result have more pixels than a single call should take."""
        return max(shape[0] * shape[1], math.prod(self.size_after(*shape[:2]))) > LARGE

    def device_data(self, shape: Shape) -> bytes:
        """Return `struct Resize`; the device computes the weights itself."""
        height, width = self.size_after(*shape[:2])
        starts, scales, taps = self._seen(shape)
        method = list(_METHODS).index(self.method)
        if (height, width) == shape[:2] and scales == (1, 1):
            method = 0  # Pillow copies, without a way by premultiplied colours
        by_columns = columns_first(shape[:2], (height, width))
        return struct.pack("<4d6i", *starts, *scales, width, height, *taps, method, by_columns)

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of each column's and row's first pixel, count and weights, 4 each."""
        height, width = self.size_after(*shape[:2])
        _, _, (across, down) = self._seen(shape)
        return 4 * (width * (2 + across) + height * (2 + down))

    def _seen(
        self, shape: Shape
    ) -> tuple[tuple[float, float], tuple[float, float], tuple[int, int]]:
        """Return, across and down: the start of the source box, source pixels a result pixel, and
        taps.

        The box is rounded to float32 as in Pillow.
        """
        height, width = self.size_after(*shape[:2])
        left, top, right, bottom = np.array(self._box(shape, height, width), np.float32)
        scales = float(right - left) / width, float(bottom - top) / height
        support = max(1, list(_METHODS).index(self.method))
        across, down = (math.ceil(support * max(scale, 1)) * 2 + 1 for scale in scales)
        return (float(left), float(top)), scales, (across, down)

    def _box(self, shape: Shape, rows: int, columns: int) -> Box:
        """Return the source box in pixels: the image, or the part that cover keeps.

        That part has the size that `ImageOps.fit` keeps. Its middle is as near to the focus as the
        sides of the image allow; a compass name is the focus in a corner or in the middle of a
        side.
        """
        (height, width), ratio = shape[:2], columns / rows
        seen_height, seen_width = float(height), float(width)
        if self.fit == "cover" and width / height > ratio:
            seen_width = ratio * height
        elif self.fit == "cover" and width / height < ratio:
            seen_height = width / ratio
        named_x = 0.5 + 0.5 * (("east" in self.gravity) - ("west" in self.gravity))
        named_y = 0.5 + 0.5 * (("south" in self.gravity) - ("north" in self.gravity))
        left = _start(named_x if self.focus_x is None else self.focus_x, width, seen_width)
        top = _start(named_y if self.focus_y is None else self.focus_y, height, seen_height)
        return left, top, left + seen_width, top + seen_height

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width in pixels.

        A side that follows from the given side is rounded to the nearest, halves to even, as in
        `ImageOps.contain`; so are minimum sizes of contain, as in `ImageOps.cover`.
        """
        rows, columns = self._fitted(height, width)
        if not self.enlarge:
            rows, columns = min(rows, height), min(columns, width)
        least_rows = self._asked(self.min_height) or 1
        least_columns = self._asked(self.min_width) or 1
        if rows >= least_rows and columns >= least_columns:
            return rows, columns
        if self.fit != "contain":
            return max(rows, least_rows), max(columns, least_columns)
        if width / height < least_columns / least_rows:
            return max(least_rows, round(height / width * least_columns)), least_columns
        return least_rows, max(least_columns, round(width / height * least_rows))

    def _fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width by width, height and fit alone."""
        high, wide = self._asked(self.height), self._asked(self.width)
        if high is None and wide is None:
            return height, width
        rows = high or max(1, round(height / width * (wide or 0)))
        columns = wide or max(1, round(width / height * rows))
        if self.fit != "contain" or high is None or wide is None:
            return rows, columns
        if width / height > columns / rows:
            return max(1, round(height / width * columns)), columns
        return rows, min(columns, max(1, round(width / height * rows)))

    def _asked(self, side: int | None) -> int | None:
        """Return a size that was asked for, in device pixels."""
        return None if side is None else round(side * self.dpr)


LONGEST_COPY = 256
"""Pixels of the longer side of the copy whose attention is measured."""


def _attention(pixels: Pixels) -> NDArray[np.int64]:
    """Return how much each pixel of a small copy draws attention, (h, w), by integers only.

    Edges, strong colours and skin are added up, as in libvips' `attention` (smartcrop.c) and in
    smartcrop.js: the absolute Laplacian of Y; the distance of Cb and Cr from grey beyond 64 levels;
    and 64 for skin, whose Cb is 77…127 and Cr 133…173 (Chai and Ngan, 1999). Transparent pixels
    count as grey.
    """
    small = Resize(width=LONGEST_COPY, height=LONGEST_COPY, enlarge=False).apply(pixels)
    colours = Composite(background="808080").apply(small)
    shown = Image.fromarray(colours[:, :, 0] if colours.shape[2] == 1 else colours)
    ycc = np.asarray(shown.convert("YCbCr"))
    cb, cr = ycc[:, :, 1].astype(np.int64), ycc[:, :, 2].astype(np.int64)
    edges = np.abs(cv2.Laplacian(np.ascontiguousarray(ycc[:, :, 0]), cv2.CV_16S))
    strong = np.maximum(np.abs(cb - 128) + np.abs(cr - 128) - 64, 0)
    skin = (cb >= 77) & (cb <= 127) & (cr >= 133) & (cr <= 173)
    return np.asarray(edges + strong + 64 * skin, np.int64)


def _best(scores: NDArray[np.int64], share: float) -> float:
    """Return the middle, from 0 to 1, of the window of this share with the largest sum."""
    seen = max(1, round(share * len(scores)))
    sums = np.convolve(scores, np.ones(seen, np.int64), "valid")
    best = np.flatnonzero(sums == sums.max())
    return float((best[len(best) // 2] + seen / 2) / len(scores))


def _start(focus: float, side: int, seen: float) -> float:
    """Return where `seen` pixels of a side begin, around a share of it but inside the image."""
    return min(max(focus * side - seen * 0.5, 0.0), side - seen)
