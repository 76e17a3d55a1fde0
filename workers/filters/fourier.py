"""Filters of frequencies: low, high and band passes, notches, and a picture of the spectrum."""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from models.domain.errors import InvalidParameter
from workers.filters.arithmetic.sums import bands
from workers.filters.base import ArrayFilter, number, rows_of_text
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Shape

# The definition, for each colour as a plane of H × W samples in float64:
#
# 1. F = rfft2(plane); frequency k of n samples is k / n cycles a pixel, from -0.5 to 0.5.
# 2. d² is the squared distance of two frequencies; differences wrap, as frequencies have period 1.
# 3. L(d², c) is a low pass: ideal 1 where d² <= c² · (1 + NEARLY), gaussian exp(-d² / 2c²),
#    butterworth 1 / (1 + (d² / c²)^order); see R. Gonzalez, R. Woods, "Digital Image Processing".
# 4. The mask is L around 0, 1 - L, the product of both, or the product of 1 - L around each notch
#    and its mirror image: it is even, so the result is real.
# 5. The result is irfft2(F · mask) + offset, rounded half up and clipped to 0…255.
# 6. The spectrum is 255 · log(1 + |F|) / log(1 + 255 · H · W), rounded half up: white is the
#    largest magnitude that an image of this size can have.
#
# NumPy and cuFFT differ by 1e-11 levels or less. Halves are frequent (a checkerboard without its
# high frequencies is 127.5), so a value up to `NEARLY` below a half counts as a half: otherwise
# their last bits would decide. `NEARLY` in 3 does the same for frequencies on the limit: torch
# multiplies by the reciprocal where NumPy divides.

NEARLY = 2.0**-20

LONGEST = 1 << 16
"""The longest side, in pixels: pieces, which have a whole row or column, stay small."""

PIECES = {"numpy": 1 << 17, "torch": 1 << 21}
"""Samples of rows or columns that are transformed at a time: they fit a core's cache, and occupy a
GPU.
"""

_FREQUENCY = Annotated[float, Field(ge=-0.5, le=0.5, strict=True)]
_MOST_NOTCHES = 16


class FftFilter(ArrayFilter):
    """Keep or remove frequencies by a Fourier transform, or show them; sides to 65,536 px."""

    kind: Literal["lowpass", "highpass", "bandpass", "notch", "spectrum"] = Field(
        "lowpass", description="spectrum shows log magnitudes with frequency 0 in the centre"
    )
    shape: Literal["ideal", "gaussian", "butterworth"] = Field(
        "gaussian", description="fall from kept to removed frequencies"
    )
    order: int = number(2, 1, 10, "order", "steepness of butterworth")
    cutoff: float = number(
        0.1, 0.0001, 0.7, "cycles/px", "limit of lowpass and highpass, lower limit of bandpass, "
        "radius of a notch; 0.5 is the finest pattern of rows or columns",
    )  # fmt: skip
    high: float = number(
        0.75, 0.0002, 0.75, "cycles/px", "upper limit of bandpass", above="cutoff"
    )  # fmt: skip
    notches: Annotated[
        tuple[tuple[_FREQUENCY, _FREQUENCY], ...],
        BeforeValidator(rows_of_text),
        Field(max_length=_MOST_NOTCHES),
    ] = Field(
        (),
        description="frequencies that notch removes, each across and down, in cycles/px; their "
        "mirror images are removed too",
        json_schema_extra={
            "takes": f"a list of 1 to {_MOST_NOTCHES} pairs of numbers from -0.5 to 0.5"
        },
        validate_default=True,
    )
    offset: float = number(
        0, 0, 255, "level", "level that is added; 128 shows both signs of highpass and bandpass"
    )

    example: ClassVar = {"kind": "bandpass", "cutoff": 0.02, "offset": 128}
    border: ClassVar = "wrap"
    tolerance: ClassVar = (
        "within 1 of scipy.fft in float64; on a GPU within 1 on at most 0.01 % of samples"
    )
    device_tolerance: ClassVar = 1e-4

    @field_validator("high")
    @classmethod
    def _above(cls, high: float, info: ValidationInfo) -> float:
        """Return `high`; raise ValueError if it is not above `cutoff`."""
        if high <= info.data.get("cutoff", 0):
            raise ValueError("must be above cutoff")
        return high

    @field_validator("notches")
    @classmethod
    def _needed(cls, notches: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        """Return `notches`; raise ValueError if kind is notch and there are none."""
        if not notches and info.data.get("kind") == "notch":
            raise ValueError("notch needs notches")
        return notches

    def size_after(self, height: int, width: int) -> tuple[int, int]:
        """Return the size itself; raises InvalidParameter for a side longer than `LONGEST`."""
        if max(height, width) > LONGEST:
            raise InvalidParameter(
                f"fft_filter: sides may have {LONGEST} pixels at most, not {max(height, width)}; "
                "resize or crop the image first"
            )
        return height, width

    def device_scratch(self, shape: Shape) -> int:
        """Return the bytes of half the spectrum of a colour, complex128 (H, W // 2 + 1)."""
        return 16 * shape[0] * (shape[1] // 2 + 1)

    def memory(self, shape: Shape) -> int:
        """Return the bytes of the result, of half a spectrum, and of the arrays of a piece."""
        piece = max(PIECES["numpy"], *shape[:2])
        return math.prod(shape) + self.device_scratch(shape) + 64 * piece

    def compute(self, xp: Any, pixels: Any, result: Any, scratch: Any) -> None:
        """Write the result as defined above, colour by colour; alpha is copied.

        Rows, then columns, are transformed and transformed back in pieces: only the spectrum,
        which is kept in `scratch`, has the size of the image.
        """
        height, width, channels = pixels.shape
        most = PIECES[xp.__name__]
        spectrum = scratch.view(xp.complex128).reshape(height, width // 2 + 1)
        if channels == 4:
            result[..., 3] = pixels[..., 3]
        for colour in range(min(channels, 3)):
            source, target = pixels[..., colour], result[..., colour]
            for rows in bands(height, width, most):
                stop_if_late()
                plane = xp.asarray(source[rows], dtype=xp.float64)
                spectrum[rows] = xp.fft.rfft(plane, None, 1)
            for columns in bands(spectrum.shape[1], height, most):
                stop_if_late()
                piece = xp.fft.fft(spectrum[:, columns], None, 0)
                if self.kind == "spectrum":
                    _draw(xp, piece, columns.start, target)
                else:
                    piece *= self._mask(xp, height, width, columns, piece.device)
                    spectrum[:, columns] = xp.fft.ifft(piece, None, 0)
            for rows in () if self.kind == "spectrum" else bands(height, width, most):
                levels = _half_up(xp, xp.fft.irfft(spectrum[rows], width, 1) + self.offset)
                target[rows] = xp.clip(levels, 0, 255)

    def _mask(self, xp: Any, height: int, width: int, columns: slice, device: Any) -> Any:
        """Return the factors of all rows of some columns of half the spectrum, float64."""
        ys = _frequencies(xp, height, device)[:, None]
        xs = _frequencies(xp, width, device)[columns]

        def low(cutoff: float, x: float = 0.0, y: float = 0.0) -> Any:
            across, down = xs - x, ys - y
            squares = (across - xp.round(across)) ** 2 + (down - xp.round(down)) ** 2
            if self.shape == "gaussian":
                return xp.exp(squares * (-0.5 / cutoff**2))
            squares /= cutoff**2
            if self.shape == "butterworth":
                return 1 / (1 + squares**self.order)
            return xp.asarray(squares <= 1 + NEARLY, dtype=xp.float64)

        if self.kind == "lowpass":
            return low(self.cutoff)
        if self.kind == "notch":
            both = [(s * x, s * y) for x, y in self.notches for s in (1, -1)]
            return math.prod(1 - low(self.cutoff, x, y) for x, y in both)
        rest = 1 - low(self.cutoff)
        return rest * low(self.high) if self.kind == "bandpass" else rest


def _frequencies(xp: Any, n: int, device: Any) -> Any:
    """Return the frequencies of n samples in cycles a sample, float64 (n,) from -0.5 to 0.5."""
    counts = xp.arange(n, dtype=xp.float64, device=device)
    # Half of n counts as positive, where half a spectrum has it.
    return xp.where(2 * counts <= n, counts, counts - n) / n


def _half_up(xp: Any, levels: Any) -> Any:
    return xp.floor(levels + (0.5 + NEARLY))


def _draw(xp: Any, piece: Any, first: int, target: Any) -> None:
    """Draw columns of half a spectrum, from `first` on, and their mirror images into the picture.

    Magnitudes at a frequency and at its negative are equal.
    """
    height, width = target.shape
    white, centre, last = math.log1p(255 * height * width), width // 2, first + piece.shape[1]
    levels = xp.roll(_half_up(xp, xp.log1p(xp.abs(piece)) * (255 / white)), height // 2, 0)
    right = levels[:, : width - centre - first]
    target[:, centre + first : centre + last] = right
    left = xp.roll(xp.flip(levels, (0, 1)), 1 - height % 2, 0)
    target[:, centre - last + 1 : centre - first + 1] = left
