"""The CUDA text of all filters and of the network's crops, as the modules of an engine.

Files name their needs by `#include "..."` with paths in `workers`. These lines are resolved here,
so that a compiler gets a single text: NVRTC needs no folder to search, and the key of a cache on
disk, which is made from the text, changes with every header. Nothing is compiled for a parameter.
Each `.cu` file is a module of its own, so that several threads compile at a time
(`compilation.py`). CuPy is not imported here: an engine launches the kernels of all modules as
`workers.kernels.items` describes.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1]
"""The folder that paths of includes begin in: `workers`."""

OPTIONS = ("-std=c++17", "--fmad=false")
"""Options for NVRTC besides the architecture: products are rounded before they are added."""

_INCLUDE = re.compile(r'#include "([^"]+)"\s*')
_KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(')


@dataclass(frozen=True, slots=True)
class CudaModule:
    """A `.cu` file, by its path below `workers`: its whole text and the names of its kernels."""

    name: str
    text: str
    kernels: tuple[str, ...]


def expanded(text: str) -> str:
    """Return `text` with every `#include` replaced by its file, each file at its first mention.

    `#line` lets a compiler's message name the file and the line. FileNotFoundError names a file
    that is included but is not below `FOLDER`.
    """
    return "".join(_lines(text, "kernels.cu", set()))


@functools.cache
def modules() -> tuple[CudaModule, ...]:
    """Return a module for each `.cu` file, ordered by path."""
    names = sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.cu"))
    texts = [(name, expanded(f'#include "{name}"\n')) for name in names]
    return tuple(CudaModule(name, text, tuple(_KERNEL.findall(text))) for name, text in texts)


def _lines(text: str, name: str, seen: set[str]) -> Iterator[str]:
    yield f'#line 1 "{name}"\n'
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        found = _INCLUDE.fullmatch(line)
        if found is None:
            yield "\n" if line == "#pragma once\n" else line
            continue
        if found[1] not in seen:
            seen.add(found[1])
            yield from _lines((FOLDER / found[1]).read_text("utf-8"), found[1], seen)
            yield f'#line {number + 1} "{name}"\n'
        else:
            yield "\n"
