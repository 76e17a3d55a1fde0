"""Filter an array in a `.npy`, TIFF or PNG file: whole if that takes little memory, else in tiles.

A tile is read with as many rows and columns around it as the filters of the chain reach together,
and only the tile itself is written: its samples are those of the whole image. The files are mapped
anew for each row of tiles, so that pages that were used do not stay in memory.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.bulk.atomic_file import unfinished
from app.bulk.errors import CannotWrite, WrongUsage
from workers.filters import bands, wide
from workers.operations import FilterChain

SIDE = 2048
"""Rows and columns of a tile, without the lines around it."""

MEMORY = 768 << 20
"""Estimated bytes that the work on a tile, or on a whole image, may take."""

TIFF = (".tif", ".tiff")
"""Suffixes of TIFFs; without `--depth` only a result with this name makes a TIFF an array."""


def are_arrays(sources: Sequence[str], target: str) -> bool:
    """Return whether a source or the result is an array, by its name."""
    return target.endswith((".npy", *TIFF)) or any(each.endswith(".npy") for each in sources)


def filter_array(
    source: Path, target: Path, chain: FilterChain, *, deep: bool, max_pixels: int, replaces: bool
) -> None:
    """Write the filtered array; raises WrongUsage, CannotWrite for an error of the file, and
    InvalidParameter if a filter cannot be applied.

    `deep`: samples must have 16 bits. An image of more than `max_pixels` is filtered in tiles.
    """
    png, tiff = target.suffix == ".png", target.suffix in TIFF
    named = png or are_arrays((), target.name)
    if not named or (target.exists() and target.samefile(source)):
        text = "name another file than the source, that ends with .npy, .tif, .tiff or .png"
        raise WrongUsage(f"--output: {text}")
    if target.exists() and not replaces:
        raise WrongUsage(f"--output: {target} exists already; add --force to replace it")
    array, metadata = _read(source)
    if deep and array.dtype.newbyteorder("=") != np.uint16:
        raise WrongUsage(f"--depth: {source} has 8 bits a sample; leave the flag out")
    two, has_colours = array.ndim == 2, array.ndim == 3 and array.shape[2] > 1
    array, chain, reach = _planned(array, chain, max_pixels, png=png)
    after = chain.shape_after(_shape(array))
    # A colour profile is of grey or of RGB.
    kinds = [cv2.IMAGE_METADATA_ICCP] if tiff else [*metadata] if png else []
    kept = {k: metadata[k] for k in kinds if k in metadata and (after[2] >= 3) == has_colours}
    try:
        with unfinished(target, replace=replaces) as temporary:
            if png:
                _save_png(temporary, array, kept)
            else:
                sizes = after[:2] if two and after[2] == 1 else after
                _make_file(temporary, sizes, array.dtype.newbyteorder("="), tiff, kept)
                for top in range(0, after[0], SIDE):
                    rows = _read(source)[0] if isinstance(array, np.memmap) else array
                    made = _mapped(temporary, tiff, "r+")
                    for left in range(0, after[1], SIDE):
                        _filter_tile(rows, made, (top, left), reach, chain)
                    made.flush()
    except OSError as error:
        raise CannotWrite.of(target, error) from None
    if len(kept) < len(metadata):
        print(f"darkroom: {target} lacks the colour profile or EXIF of {source}", file=sys.stderr)


def _planned(
    array: NDArray[Any], chain: FilterChain, max_pixels: int, *, png: bool
) -> tuple[NDArray[Any], FilterChain, tuple[int, int]]:
    """Return the array, the filters that its tiles still need, and the rows and columns that these
    reach. An array that takes little memory is filtered here, and its tiles need no filter.
    """
    shape, dtype = _shape(array), array.dtype.newbyteorder("=")
    narrow, wider = partial(chain.memory, overwrite=True), partial(wide.memory, chain.filters)
    memory = wider if dtype == np.uint16 else narrow
    needed = memory(shape)
    if png:  # the source, the result in both orders of channels, and the file
        needed = max(needed, 4 * dtype.itemsize * math.prod(chain.shape_after(shape)))
    if needed <= MEMORY and chain.most_pixels(*shape[:2]) <= max_pixels:
        made = _filtered(np.require(array, dtype, ["C", "W"]).reshape(shape), chain)
        return made, FilterChain(()), (0, 0)
    if png:
        raise WrongUsage("--output: the image is too large for a PNG here; name a .npy or .tif")
    reach = _reach(chain)
    tile = *(min(n, SIDE + 2 * r) for n, r in zip(shape[:2], reach, strict=True)), shape[2]
    needed = memory(tile) + (0 if isinstance(array, np.memmap) else array.nbytes)
    if needed > MEMORY:
        raise WrongUsage(
            f"the filters reach {reach[0]:,} rows and {reach[1]:,} columns: a tile takes about "
            f"{needed >> 20:,} MiB of memory, more than {MEMORY >> 20}; make them smaller"
        )
    return array, chain, reach


def _shape(array: NDArray[Any]) -> tuple[int, int, int]:
    """Return (height, width, channels)."""
    return (*array.shape[:2], array.shape[2] if array.ndim == 3 else 1)


def _save_png(path: Path, array: NDArray[Any], kept: Mapping[int, Any]) -> None:
    """Write an array as a PNG with metadata; raises OSError."""
    given = _swapped(array), [*kept], [*kept.values()]
    done, data = cv2.imencodeWithMetadata(".png", *given)
    if not done:
        raise OSError("a side of a PNG has at most 1,000,000 pixels")
    path.write_bytes(data.tobytes())


def _make_file(
    path: Path, sizes: tuple[int, ...], dtype: np.dtype[Any], tiff: bool, kept: Mapping[int, Any]
) -> None:
    """Make a TIFF or a `.npy` file of zeros, whose bytes the disk has room for; raises OSError."""
    channels = sizes[2] if len(sizes) == 3 else 1
    if tiff:
        layout: dict[str, Any] = {"photometric": "rgb" if channels >= 3 else "minisblack"}
        layout |= {"extrasamples": "unassalpha"} if channels == 4 else {}
        for profile in kept.values():
            layout["iccprofile"] = profile.tobytes()
        _tifffile().memmap(path, shape=sizes, dtype=dtype, metadata=None, **layout)
    else:
        np.lib.format.open_memmap(path, "w+", dtype, sizes)
    if hasattr(os, "posix_fallocate"):  # a full disk would kill a process that writes
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, file.seek(0, os.SEEK_END))


def _read(source: Path) -> tuple[NDArray[Any], dict[int, Any]]:
    """Map the array of a file, or decode it; WrongUsage if it is no image.

    Also return its metadata by OpenCV's numbers of kinds, such as the colour profile, uint8 (1, n).
    """
    tiff, metadata = source.suffix in TIFF, dict[int, Any]()
    try:
        if source.suffix == ".png":
            with Image.open(source, formats=["PNG"]) as header:
                if header.mode[0] == "I" and "transparency" in header.info:  # OpenCV drops it
                    raise ValueError("a colour of a grey PNG of 16 bits cannot be transparent")
            array, metadata = _decoded(source, header.width * header.height)
        elif tiff:
            with _tifffile().TiffFile(source) as file:
                page = file.pages[0]
                if page.photometric.name not in ("MINISBLACK", "RGB") or len(file.pages) > 1:
                    raise ValueError(f"{len(file.pages)} pages, colours {page.photometric.name}")
                if page.iccprofile:
                    profile = np.frombuffer(page.iccprofile, np.uint8)
                    metadata = {cv2.IMAGE_METADATA_ICCP: profile[None]}
            if page.is_contiguous or page.bitspersample != 16 or page.planarconfig != 1:
                array = _mapped(source, tiff, "r")
            elif (turned := page.tags.valueof("Orientation", 1)) != 1:  # which OpenCV obeys in part
                raise ValueError(f"compressed, with the orientation {turned}; save it upright")
            else:
                sides = max(page.imagewidth, page.tilewidth), max(page.imagelength, page.tilelength)
                array, _ = _decoded(source, math.prod(sides))
        else:
            array = _mapped(source, tiff, "r")
    except (OSError, ValueError, IndexError, cv2.error, Image.DecompressionBombError) as error:
        need = (
            "a .npy, a .png of 16 bits, or a .tif of one page of grey or RGB is needed, of 8 bits"
        )
        text = getattr(error, "strerror", None) or f"{error}; {need} without compression"
        raise WrongUsage(f"{source}: {text}") from None
    shape, dtype = array.shape, array.dtype
    image = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    if dtype.newbyteorder("=") not in (np.uint8, np.uint16) or 0 in shape or not image:
        raise WrongUsage(
            f"{source}: an array of uint8 or uint16 with the shape (height, width) or (height, "
            f"width, 3 | 4) is needed, not {dtype} {shape}"
        )
    return array, metadata


def _mapped(path: Path, tiff: bool, mode: str) -> "np.memmap[Any, Any]":
    """Map the array of a file; OSError or ValueError if it has none that can be mapped."""
    mapped = _tifffile().memmap if tiff else np.lib.format.open_memmap
    array: np.memmap[Any, Any] = mapped(path, mode=mode)
    return array


def _decoded(path: Path, pixels: int) -> tuple[NDArray[Any], dict[int, Any]]:
    """Decode a file of 16 bits; ValueError if it is damaged, or its pixels take too much memory."""
    if pixels > MEMORY // 16:  # bytes of a pixel with alpha in OpenCV's order, and in ours
        raise ValueError(f"{pixels:,} pixels are more than {MEMORY // 16:,}; save them as .npy")
    decoded, *metadata = cv2.imreadWithMetadata(str(path), cv2.IMREAD_UNCHANGED)
    if decoded is None or decoded.dtype != np.uint16:
        what = "is damaged" if decoded is None else "has no samples of 16 bits"
        raise ValueError(f"the file {what}")
    return _swapped(decoded), dict(zip(*metadata, strict=True))


def _swapped(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return the pixels with red and blue exchanged, because OpenCV's order is BGR."""
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return pixels
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR if pixels.shape[2] == 3 else cv2.COLOR_RGBA2BGRA)


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
                f"{each.name} depends on the whole image or on places in it, and arrays above "
                f"--max-pixels or {MEMORY >> 20} MiB of work are filtered in tiles; make it smaller"
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
    pixels = _filtered(pixels.reshape(*pixels.shape[:2], -1), chain)
    tile = pixels[tuple(inside)]
    made[tuple(written)] = tile.reshape(*tile.shape[:2], *made.shape[2:])


def _filtered(pixels: NDArray[Any], chain: FilterChain) -> NDArray[Any]:
    """Return the filtered array, (h, w, C); it may overwrite its input."""
    if pixels.dtype == np.uint16:
        for each in chain.filters:
            pixels = wide.apply(each, pixels)
    else:
        for step in chain.steps:
            pixels = bands.apply(step, pixels, overwrite=True)
    return pixels
