"""Images in pieces that fit a cache: what keeps a filter's memory small whatever its image."""

from collections.abc import Iterator

BAND_SAMPLES = 1 << 18
"""Samples in a piece: 2 MiB as float64. Measured: whole images took 20 times their own memory."""


STRIP_SAMPLES = 1 << 16
"""The same for a step of few instructions, which waits for a farther cache: measured, too."""


def bands(length: int, breadth: int, samples: int = BAND_SAMPLES) -> Iterator[slice]:
    """Slices that cover `length` rows (or columns) of `breadth` samples each, in order."""
    step = max(1, samples // breadth)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
