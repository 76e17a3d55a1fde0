"""A compiler compares structs, tiles and numbers that both Python and the CUDA text state.

Every comparison is a static_assert with the number that Python computes; g++ reads it together with
the text of all kernels.
"""

import importlib
import itertools
import pkgutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import workers.filters
from models.codec import matrix_shaper
from models.domain.image import Subsampling
from models.networks.spec import Interpolation
from tests.emulation.emulator import FLAGS, ROOT, compiler
from workers.engines.cuda import classifying, filtering, jpeg_blocks, jpeg_encoder, sources
from workers.filters import geometry, morphological, smoothing
from workers.filters.arithmetic.sums import OPENCV, device_box
from workers.filters.blur import BoxBlur
from workers.filters.edges import OPERATORS, edge_data, wide_edge_data
from workers.filters.effects import Noise
from workers.filters.registry import FILTERS, parse_one
from workers.filters.separable import device_weights
from workers.kernels import items, loader
from workers.kernels.items import Grid, Pass, grid_of

SHAPE = (90, 100, 3)
BY_HOST = {"clahe_tables", "box_blur_opaque", "box_blur_opaque_wide", "morphology_small"}
"""Kernels whose number of blocks depends on parameters; box and small rectangles stand below."""

NO_PASSES = {"crop_weights", "crop_normalise_16", "crop_normalise_32", "count_jpeg_blocks"}
"""Kernels of the network's input and of the check of JPEGs."""


def failures(assertions: Iterator[str]) -> str:
    """Return what g++ reports about assertions behind the text of all kernels."""
    text = ROOT + "".join(f'static_assert({each}, "{each}");\n' for each in assertions)
    command = [compiler(), *FLAGS, "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input=text.encode(), capture_output=True).stderr.decode()


def data(name: str, **parameters: Any) -> int:
    """Return the number of bytes that a filter uploads for a kernel."""
    return len(parse_one(name, parameters).device_data(SHAPE))


def passes_in(value: object) -> Iterator[Pass]:
    """Yield all passes in a value of a module or a class."""
    if isinstance(value, Pass):
        yield value
    elif isinstance(value, Mapping):
        yield from passes_in(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from passes_in(each)


def all_passes() -> set[Pass]:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(workers.filters.__path__, "workers.filters.")
    ]
    values = [value for module in modules for value in vars(module).values()]
    values += [filter_.passes for filter_ in FILTERS.values()]
    own = {filtering.UNPACKING, *jpeg_encoder.ENCODING, jpeg_encoder.STORING}
    return {pass_ for value in values for pass_ in passes_in(value)} | own


def launched(kernel: str, grid: Grid) -> str:
    if grid.each:
        return f"launch_blocks_{kernel} == {grid.each}"
    if grid.flat:
        return f"launch_line_{kernel} == {grid.width}"
    width, height = f"launch_width_{kernel}", f"launch_height_{kernel}"
    return f"{width} == {grid.width} && {height} == {grid.height}"


def grids() -> Iterator[str]:
    """Yield comparisons of the grids that are read from the text; each kernel has a pass."""
    passes = all_passes()
    assert {pass_.kernel for pass_ in passes} | NO_PASSES == {
        kernel for module in loader.modules() for kernel in module.kernels
    }
    assert {pass_.kernel for pass_ in passes if pass_.own_grid} == BY_HOST
    kernels = {pass_.kernel for pass_ in passes} - BY_HOST
    yield from (launched(kernel, grid_of(kernel)) for kernel in kernels)


def tiles() -> Iterator[str]:
    """Yield comparisons of the tiles that depend on parameters."""
    for index, radius in enumerate((31, 191, 255, 500)):
        tile, of = BoxBlur(radius=radius).device_passes[0].grid, f"BOX_TILES[{index}]"
        yield f"{of}.width == {tile.width} && {of}.height == {tile.height}"
        yield f"{of}.radii == {radius + 1}"
    for length, pass_ in zip((16, 25), morphological.SQUARES, strict=True):
        yield f"SMALL_RECT_WIDTH == {pass_.grid.width}"
        yield f"small_rect_height({length}) == {pass_.grid.height}"


NAMED = {"resized": "resized_width", "corner": "left"}
"""Members of `struct Crop` that are one array in Python."""


def of_dtype(name: str, dtype: np.dtype[Any]) -> Iterator[str]:
    yield f"sizeof({name}) == {dtype.itemsize}"
    assert dtype.fields is not None
    for field, (_, offset, *_) in dtype.fields.items():
        yield f"__builtin_offsetof({name}, {NAMED.get(field, field)}) == {offset}"


def rows() -> Iterator[str]:
    """Yield comparisons of the rows of a launch with the structs of the kernels."""
    structs = {
        "Item": items.ITEM,
        "Source": sources.SOURCE,
        "Crop": classifying.CROP,
        "Unpack": filtering.UNPACK,
        "JpegFile": jpeg_blocks.FILE,
        "JpegTables": jpeg_encoder.TABLES,
    }
    for name, kind in structs.items():
        yield from of_dtype(name, kind)


def uploads() -> Iterator[str]:
    """Yield comparisons of structs with the number of bytes that filters upload there."""
    tones = np.zeros(256, np.uint8)
    motion = parse_one("motion_blur", {"length": 21, "angle": 30}).device_data(SHAPE)
    (taps,) = struct.unpack_from("<i", motion)
    noise = parse_one("noise", {"amount": 20})
    quantiles = noise.device_data(SHAPE)
    exact = {"kernel": [[0.5, 0.25], [0.125, 1]], "divisor": 3}
    weights = (np.ones(9, np.int64), np.ones(17, np.int64))
    yield f"__builtin_offsetof(Shaper, levels) == {matrix_shaper.SHAPER.itemsize}"
    yield f"sizeof(Shaper::levels) == {len(matrix_shaper.srgb_levels())}"
    yield f"sizeof(Box) == {len(device_box(3))}"
    yield f"sizeof(Guided) == {data('guided')}"
    yield f"sizeof(Bilateral) == {data('bilateral')}"
    yield f"MOST_REACH == {smoothing.MOST_REACH}"
    yield f"sizeof(RankSquare) == {data('rank', size=5)} && sizeof(RankSquare) == {data('median')}"
    yield f"sizeof(Flip) == {data('flip')}"
    yield f"sizeof(Window) == {data('pad', left=2)} && sizeof(Window) == {data('crop')}"
    yield f"sizeof(Rotate) == {data('rotate', degrees=9)}"
    yield f"sizeof(Resize) == {data('resize', width=9)}"
    yield f"sizeof(Vignette) == {data('vignette')}"
    yield f"sizeof(Clahe) == {data('clahe')}"
    yield f"sizeof(Contrast) == {data('contrast')}"
    yield f"sizeof(HistogramData) == {data('otsu')}"
    yield f"sizeof(Threshold) == {data('threshold')}"
    yield f"sizeof(HueRotation) == {data('hue')}"
    yield f"sizeof(Matrix) == {data('sepia')}"
    yield f"sizeof(PatchDistances) + sizeof(PatchShared::weights) >= {data('nl_means')}"
    yield f"sizeof(CorrelateInt) == {data('convolve', kernel=[[1, 2, 3]])}"
    yield f"sizeof(CorrelateSmall) - 16 * 4 == {data('convolve', **exact)}"
    yield f"__builtin_offsetof(Motion, tap) + {taps} * sizeof(Tap) == {len(motion)}"
    yield f"sizeof(Edges) == {len(edge_data('sobel', 2, tones)) - len(tones)}"
    wide = len(wide_edge_data(1.0, np.ones((5, 5), np.int64)))
    yield f"__builtin_offsetof(WideEdges, weights) + sizeof(WideEdges::weights) == {wide}"
    yield f"__builtin_offsetof(Gaussian, weights) == {len(device_weights(*weights)) - 4 * (4 + 8)}"
    yield "__builtin_offsetof(Canny, weights) == WEIGHTS_OFFSET"
    yield "__builtin_offsetof(Adaptive, weights) == WEIGHTS_OFFSET"
    yield "__builtin_offsetof(Dog, first) == DOG_HEADER"
    yield f"__builtin_offsetof(Noise, quantiles) == {len(quantiles) - used_quantiles(quantiles)}"


def used_quantiles(blob: bytes) -> int:
    """Return the bytes of the quantiles in `struct Noise`: one entry a group, 64 in the tails."""
    _, tail = struct.unpack_from("<QI", blob)
    used: int = 2 * (1024 + 2 * tail * 63)
    return used + -used % 16


def options() -> Iterator[str]:
    """Yield comparisons of the numbers of options with the enums of the kernels."""
    for enum in (OPENCV, OPERATORS, geometry._METHODS):
        for number, name in enumerate(enum):
            yield f"{str(name).upper()} == {number}"
    for subsampling, number in sources.KINDS.items():
        name = "GREY" if subsampling is Subsampling.GREY else f"S{subsampling.name[1:]}"
        yield f"{name} == {number}"
    for name in ("SOURCE", "RESULT", "SCRATCH", "SPARE"):
        yield f"{name} == {getattr(morphological, name)}"
    yield from (f"{each.name} == {each.value}" for each in Interpolation)


def limits() -> Iterator[str]:
    """Yield comparisons of limits."""
    most = max(
        struct.unpack_from("<QI", Noise(amount=amount).device_data(SHAPE))[1]
        for amount in np.linspace(0, 128, 129)
    )
    yield f"THREADS == {items.THREADS}"
    yield f"ROOM == {classifying.ROOM}"
    yield f"MOST_TAIL >= {most}"
    yield f"{morphological.STEPS} * sizeof(MorphologyPass) == sizeof(Morphology::steps)"


def test_python_states_what_a_compiler_sees_in_the_text_of_the_kernels() -> None:
    wrong = launched("bilateral", Grid(64, 17))
    stated = (grids(), tiles(), rows(), uploads(), options(), limits(), [wrong])
    found = failures(itertools.chain(*stated))
    assert found.count("error:") == 1, found
    assert wrong in found
