"""Filter an array in a `.npy` or TIFF file that may be larger than memory, tile by tile.

A tile is read with as many rows and columns around it as the filters of the chain reach together,
and only the tile itself is written: its samples are those of the whole image. The files are mapped
anew for each row of tiles, so that pages that were used do not stay in memory.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.bulk.atomic_file import unfinished
from app.bulk.errors import CannotWrite, WrongUsage
from models.domain.errors import InvalidParameter
from workers.filters import bands, wide
from workers.operations import FilterChain

SIDE = 2048
"""Rows and columns of a tile, without the lines around it."""

MEMORY = 768 << 20
"""Estimated bytes that the work on a tile may take."""

_WIDE = 40
"""Bytes per sample that a filter of 16-bit samples takes: some arrays of float64."""


TIFF = (".tif", ".tiff")
"""Suffixes of TIFFs; only a result with this name makes a TIFF an array and no image."""


def are_arrays(sources: Sequence[str], target: str) -> bool:
    """Return whether a source or the result is an array, by its name."""
    return target.endswith((".npy", *TIFF)) or any(each.endswith(".npy") for each in sources)


def filter_array(source: Path, target: Path, chain: FilterChain, *, replaces: bool) -> None:
    """Write the filtered array; raises WrongUsage, and CannotWrite for an error of the file."""
    array = _mapped(source)
    dtype = array.dtype.newbyteorder("=")
    if not are_arrays((), target.name) or (target.exists() and target.samefile(source)):
        raise WrongUsage(
            "--output: name another file than the source; its name ends with .npy, .tif or .tiff"
        )
    if target.exists() and not replaces:
        raise WrongUsage(f"--output: {target} exists already; add --force to replace it")
    shape = *array.shape[:2], array.shape[2] if array.ndim == 3 else 1
    reach = _reach(chain)
    tile = *(min(n, SIDE + 2 * r) for n, r in zip(shape[:2], reach, strict=True)), shape[2]
    try:
        channels = chain.shape_after(tile)[2]
        needed = chain.memory(tile)
        if dtype == np.uint16:
            wide.check(chain.filters, shape[2])
            needed = _WIDE * tile[0] * tile[1] * tile[2]
    except InvalidParameter as error:
        raise WrongUsage(str(error)) from None
    if needed > MEMORY:
        raise WrongUsage(
            f"the filters reach {reach[0]:,} rows and {reach[1]:,} columns, so that a tile takes "
            f"about {needed >> 20:,} MiB of memory, more than {MEMORY >> 20}; make them smaller"
        )
    after = (*shape[:2], channels) if array.ndim == 3 or channels > 1 else shape[:2]
    del array
    try:
        with unfinished(target, replace=replaces) as temporary:
            tiff = target.suffix in TIFF
            if tiff:
                layout = {"photometric": "rgb" if channels >= 3 else "minisblack"}
                layout |= {"extrasamples": "unassalpha"} if channels == 4 else {}
                _tifffile().memmap(temporary, shape=after, dtype=dtype, metadata=None, **layout)
            else:
                np.lib.format.open_memmap(temporary, "w+", dtype, after)
            if hasattr(os, "posix_fallocate"):  # a full disk would kill a process that writes
                with temporary.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, file.seek(0, os.SEEK_END))
            for top in range(0, shape[0], SIDE):
                rows, made = _mapped(source), _opened(temporary, tiff, "r+")
                for left in range(0, shape[1], SIDE):
                    _filter_tile(rows, made, (top, left), reach, chain)
                made.flush()
    except OSError as error:
        raise CannotWrite.of(target, error) from None


def _mapped(source: Path) -> NDArray[np.generic]:
    """Map the array of a file; WrongUsage if it is no image."""
    try:
        array = _opened(source, source.suffix in TIFF, "r")
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{source}: {getattr(error, 'strerror', None) or error}") from None
    shape, dtype = array.shape, array.dtype
    image = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    if dtype.newbyteorder("=") not in (np.uint8, np.uint16) or 0 in shape or not image:
        raise WrongUsage(
            f"{source}: an array of uint8 or uint16 with the shape (height, width) or (height, "
            f"width, 3 | 4) is needed, not {dtype} {shape}"
        )
    return array


def _opened(path: Path, tiff: bool, mode: str) -> "np.memmap[Any, Any]":
    """Map the array of a file; OSError or ValueError if it has none that can be mapped."""
    array: np.memmap[Any, Any]
    if not tiff:
        array = np.lib.format.open_memmap(path, mode)
        return array
    try:
        with _tifffile().TiffFile(path) as file:
            page = file.pages[0]
            if page.photometric.name not in ("MINISBLACK", "RGB") or len(file.pages) > 1:
                raise ValueError(f"{len(file.pages)} pages, colours {page.photometric.name}")
        array = _tifffile().memmap(path, mode=mode)
    except (ValueError, IndexError) as error:
        need = "a TIFF of one page of grey or RGB without compression is needed"
        raise ValueError(f"{error}; {need}") from None
    return array


def _tifffile() -> Any:
    try:
        import tifffile
    except ImportError:
        text = "a TIFF as an array needs the package tifffile: pip install tifffile"
        raise WrongUsage(text) from None
    return tifffile


def _reach(chain: FilterChain) -> tuple[int, int]:
    """Return the rows and columns that the filters reach together; WrongUsage if there is no
    bound.
    """
    rows = columns = 0
    for each in chain.filters:
        if each.around is None:
            raise WrongUsage(
                f"{each.name} depends on the whole image or on places in it, and an array is "
                "filtered in tiles; convert it to an image file for this filter"
            )
        rows, columns = rows + each.around[0], columns + each.around[1]
    return rows, columns


def _filter_tile(
    source: NDArray[np.generic],
    made: NDArray[np.generic],
    corner: tuple[int, int],
    reach: tuple[int, int],
    chain: FilterChain,
) -> None:
    """Filter the tile whose first row and column are `corner`, and write it."""
    seen, inside, written = [], [], []
    for start, around, length in zip(corner, reach, source.shape[:2], strict=True):
        stop, first = min(start + SIDE, length), max(0, start - around)
        seen.append(slice(first, stop + around))
        inside.append(slice(start - first, stop - first))
        written.append(slice(start, stop))
    pixels = np.array(source[tuple(seen)], made.dtype, order="C")
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    if pixels.dtype == np.uint16:
        for each in chain.filters:
            pixels = wide.apply(each, pixels)
    else:
        for step in chain.steps:
            pixels = bands.apply(step, pixels, overwrite=True)
    tile = pixels[tuple(inside)]
    made[tuple(written)] = tile.reshape(*tile.shape[:2], *made.shape[2:])
