"""The CUDA text of the filters: one module of kernels, in .cu files by family.

Knows no CuPy: an engine compiles `source()` once with `OPTIONS`, for its own GPU, and launches
`KERNELS` by the words of `workers.kernels.items`. Nothing is ever compiled for a parameter.
"""

import functools
import re
from pathlib import Path

FILES = (
    "kernels/common.cuh",
    "kernels/pixels.cuh",
    "filters/tone/point.cu",
    "filters/colour/colour_maps.cu",
    "filters/geometry/flip_rotate.cu",
    "filters/geometry/window.cu",
    "filters/geometry/weights.cu",
    "filters/geometry/resize.cu",
    "filters/effects/vignette.cu",
    "filters/effects/noise.cu",
    "filters/tone/histogram_scan.cu",
    "filters/tone/tables.cu",
    "filters/effects/pixelate.cu",
    "filters/tone/clahe.cu",
    "filters/sharpen/correlate.cu",
    "filters/sharpen/correlate_small_float.cu",
    "filters/edges/edges_wide.cu",
    "filters/blur/motion_blur.cu",
    "filters/smoothing/bilateral.cu",
    "filters/edges/edges.cu",
    "filters/tone/contrast.cu",
    "filters/smoothing/median.cu",
    "filters/smoothing/rank_bitsliced.cu",
    "filters/blur/gaussian.cu",
    "filters/blur/gaussian_columns.cu",
    "kernels/mma.cuh",
    "filters/smoothing/rank_band_counts.cu",
    "filters/smoothing/rank_bitwise_search_mma.cu",
    "filters/arithmetic/separable.cu",
    "filters/arithmetic/separable_store.cuh",
    "kernels/pixel_pairs.cuh",
    "filters/sharpen/correlate_3x3_int.cu",
    "filters/sharpen/sharpen.cu",
    "filters/arithmetic/separable_kernels.cu",
    "filters/blur/gaussian_two_pass_mma.cu",
    "filters/blur/box_blur_alpha.cu",
    "filters/arithmetic/column_running_sums.cu",
    "filters/blur/box_blur_opaque.cu",
    "filters/morphological/morphology.cu",
    "filters/morphological/morphology_small.cu",
    "filters/threshold/adaptive_threshold.cu",
    "filters/edges/dog.cu",
    "kernels/union_find.cuh",
    "filters/edges/canny.cu",
    "filters/smoothing/guided.cu",
    "filters/smoothing/patch_distances.cu",
    "kernels/source.cuh",
    "kernels/crop.cu",
)
"""The text, in the order in which it is read, by paths in `workers`: each file may use what is
in those before it.
"""

OPTIONS = ("-std=c++17", "--fmad=false")
"""For NVRTC, besides the architecture: products are rounded before they are added."""

_KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(')


@functools.cache
def source() -> str:
    """All text; `#line` lets a compiler's message name the file."""
    folder = Path(__file__).parents[1]
    return "".join(f'#line 1 "{name}"\n{(folder / name).read_text("utf-8")}' for name in FILES)


KERNELS: tuple[str, ...] = tuple(_KERNEL.findall(source()))
"""The names of all kernels."""
