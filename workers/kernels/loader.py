"""The CUDA text of all filters and of the network's crops, as the modules of an engine.

Files name their needs by `#include "..."` with paths in `workers`, and files of other packages also
with paths such as `darkroom_exposure/exposure.cu`. These lines are resolved here, so that a
compiler gets a single text: NVRTC needs no folder to search, and the key of a cache on disk, which
is made from the text, changes with every header. Nothing is compiled for a parameter.
Each `.cu` file is a module of its own, so that several threads compile at a time
(`compilation.py`). CuPy is not imported here: an engine launches the kernels of all modules as
`workers.kernels.items` describes.
"""

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from models.plugins import PluginRefused, plugins

FOLDER = Path(__file__).parents[1]
"""The folder that paths of includes begin in: `workers`."""

OPTIONS = ("-std=c++17", "--fmad=false")
"""Options for NVRTC besides the architecture: products are rounded before they are added."""

_INCLUDE = re.compile(r'#include "([^"]+)"\s*')
_KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(')


@dataclass(frozen=True, slots=True)
class CudaModule:
    """A `.cu` file, by the name that includes it: its whole text and the names of its kernels."""

    name: str
    text: str
    kernels: tuple[str, ...]


def expanded(text: str) -> str:
    """Return `text` with every `#include` replaced by its file, each file at its first mention.

    `#line` lets a compiler's message name the file and the line. Raises PluginRefused for
    an included file that does not exist.
    """
    return "".join(_lines(text, "kernels.cu", set()))


@functools.cache
def modules() -> tuple[CudaModule, ...]:
    """Return a module for each `.cu` file: Darkroom's by path, then those of other packages.

    Raises PluginRefused for a kernel with the name of another kernel, and as `expanded` does.
    """
    names = [name for name in _files() if name.endswith(".cu")]
    texts = [(name, expanded(f'#include "{name}"\n')) for name in names]
    found = tuple(CudaModule(name, text, tuple(_KERNEL.findall(text))) for name, text in texts)
    owners: dict[str, str] = {}
    for kernel, name in ((kernel, each.name) for each in found for kernel in each.kernels):
        if kernel in owners:
            raise PluginRefused(_files()[name][0], f"{owners[kernel]} has a kernel {kernel} too")
        owners[kernel] = _files()[name][0]
    return found


@functools.cache
def _files() -> Mapping[str, tuple[str, Path]]:
    """Return package and path of each CUDA file by the name that includes it.

    The files of other packages lie beside the modules of their entry points.
    """
    own = sorted(FOLDER.rglob("*.cu*"))
    found = {file.relative_to(FOLDER).as_posix(): ("Darkroom", file) for file in own}
    for package, module, _ in plugins():
        place = (sys.modules[module].__package__ or "").replace(".", "/")
        for file in sorted(Path(str(sys.modules[module].__file__)).parent.glob("*.cu*")):
            found.setdefault(f"{place}/{file.name}", (package, file))
    return found


def _lines(text: str, name: str, seen: set[str]) -> Iterator[str]:
    yield f'#line 1 "{name}"\n'
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        found = _INCLUDE.fullmatch(line)
        if found is None:
            yield "\n" if line == "#pragma once\n" else line
            continue
        if found[1] not in seen:
            seen.add(found[1])
            if found[1] not in _files():
                raise PluginRefused(_files()[name][0], f"{name} includes {found[1]}: no such file")
            yield from _lines(_files()[found[1]][1].read_text("utf-8"), found[1], seen)
            yield f'#line {number + 1} "{name}"\n'
        else:
            yield "\n"
