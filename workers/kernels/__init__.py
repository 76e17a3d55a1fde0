"""The CUDA text of the filters: one module of kernels, in .cu files by family.

Knows no CuPy: an engine compiles `source()` once with `OPTIONS`, for its own GPU, and launches
`KERNELS` by the words of `workers.kernels.items`. Nothing is ever compiled for a parameter.
"""

import functools
import re
from pathlib import Path

FILES = (
    "common.cuh",
    "pixels.cuh",
    "point.cu",
    "tones.cu",
    "move.cu",
    "window.cu",
    "weights.cu",
    "resize.cu",
    "vignette.cu",
    "noise.cu",
    "counts.cu",
    "tables.cu",
    "pixelate.cu",
    "clahe.cu",
    "correlate.cu",
    "around.cu",
    "edges_wide.cu",
    "motion.cu",
    "bilateral.cu",
    "edges.cu",
    "contrast.cu",
    "median.cu",
    "bits.cu",
    "gaussian.cu",
    "columns.cu",
    "tensor.cuh",
    "bands.cu",
    "descent.cu",
    "separable.cu",
    "strips.cuh",
    "pairs.cuh",
    "whole.cu",
    "sharpen.cu",
    "linear.cu",
    "wide.cu",
    "box.cu",
    "walk.cu",
    "sums.cu",
    "morphology.cu",
    "squares.cu",
    "adaptive.cu",
    "dog.cu",
    "links.cuh",
    "canny.cu",
    "guided.cu",
    "likeness.cu",
    "source.cuh",
    "crop.cu",
)
"""The text, in the order in which it is read: each file may use what is in those before it."""

OPTIONS = ("-std=c++17", "--fmad=false")
"""For NVRTC, besides the architecture: products are rounded before they are added."""

_KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(')


@functools.cache
def source() -> str:
    """All text; `#line` lets a compiler's message name the file."""
    folder = Path(__file__).parent
    return "".join(f'#line 1 "{name}"\n{(folder / name).read_text("utf-8")}' for name in FILES)


KERNELS: tuple[str, ...] = tuple(_KERNEL.findall(source()))
"""The names of all kernels."""
