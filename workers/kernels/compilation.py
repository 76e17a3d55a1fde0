"""Compile the modules that no cubin on disk stands for: in parallel, and once on each host.

NVRTC compiles on as many threads as call it. A process that finds another process compiling waits
and loads its cubins, so that two workers of a GPU do not compile the same.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from models.usable_cpus import usable_cores
from workers.kernels.cubins import CubinName, CubinStore, key
from workers.kernels.loader import OPTIONS, CudaModule

log = logging.getLogger("darkroom.kernels")

MAX_THREADS = 16
"""Modules compiled at a time: the longest one takes a ninth of the time of all."""


class Compiler(Protocol):
    """Makes cubins from text."""

    @property
    def version(self) -> str:
        """Return the name and the version of the compiler."""

    def compile(self, text: str, name: str, options: Sequence[str]) -> bytes:
        """Return the cubin; RuntimeError carries the compiler's messages."""


def options(architecture: str) -> tuple[str, ...]:
    """Return the compiler's options for an architecture such as `sm_90`: the options that CuPy
    would give.
    """
    extra = ("-ftz=true", "--device-as-default-execution-space")
    return (*OPTIONS, *extra, f"-arch={architecture}")


def compiled(
    modules: Sequence[CudaModule], architecture: str, compiler: Compiler, store: CubinStore
) -> Mapping[str, bytes]:
    """Return the cubin of each module by its name, from `store` as far as it has them.

    A missing cubin is compiled and added to the store. Raises RuntimeError with the compiler's
    messages when a module cannot be compiled.
    """
    names = [_name(module, architecture, compiler) for module in modules]
    found = _found(names, store)
    if len(found) < len(modules):
        with store.lock():
            found = _found(names, store)  # another process may have compiled them during the wait
            missing = [
                (module, name)
                for module, name in zip(modules, names, strict=True)
                if name.module not in found
            ]
            if missing:
                found |= _compile(missing, architecture, compiler, store)
    return found


def _name(module: CudaModule, architecture: str, compiler: Compiler) -> CubinName:
    digest = key(module.text, options(architecture), architecture, compiler.version)
    return CubinName(module.name, architecture, digest)


def _found(names: Sequence[CubinName], store: CubinStore) -> dict[str, bytes]:
    contents = {name.module: store.find(name) for name in names}
    return {name: content for name, content in contents.items() if content is not None}


def _compile(
    missing: Sequence[tuple[CudaModule, CubinName]],
    architecture: str,
    compiler: Compiler,
    store: CubinStore,
) -> dict[str, bytes]:
    def one(module: CudaModule, name: CubinName) -> bytes:
        content = compiler.compile(module.text, module.name, options(architecture))
        store.add(name, content)
        return content

    started = time.monotonic()
    threads = min(usable_cores(), len(missing), MAX_THREADS)
    log.info("compiling %d modules of kernels for %s", len(missing), architecture)
    with ThreadPoolExecutor(threads, "compiler") as pool:
        contents = list(pool.map(one, *zip(*missing, strict=True)))
    log.info("compiled for %s in %.1f s", architecture, time.monotonic() - started)
    return {name.module: content for (_, name), content in zip(missing, contents, strict=True)}
