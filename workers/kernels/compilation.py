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
from workers.kernels.cubins import CubinStore, file_of
from workers.kernels.loader import OPTIONS, CudaModule

log = logging.getLogger("darkroom.kernels")

MAX_THREADS = 16
"""Modules compiled at a time: the longest takes an eighth of the time of all."""


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
    files = {
        each.name: file_of(
            each.name, each.text, options(architecture), architecture, compiler.version
        )
        for each in modules
    }

    def kept() -> dict[str, bytes]:
        contents = {name: store.find(file) for name, file in files.items()}
        return {name: content for name, content in contents.items() if content is not None}

    def compile_one(module: CudaModule) -> tuple[str, bytes]:
        content = compiler.compile(module.text, module.name, options(architecture))
        store.add(files[module.name], content)
        return module.name, content

    found = kept()
    if len(found) < len(modules):
        with store.lock():
            found = kept()  # another process may have compiled them during the wait
            missing = [module for module in modules if module.name not in found]
            if missing:
                started = time.monotonic()
                log.info("compiling %d modules of kernels for %s", len(missing), architecture)
                threads = min(usable_cores(), len(missing), MAX_THREADS)
                with ThreadPoolExecutor(threads, "compiler") as pool:
                    found |= dict(pool.map(compile_one, missing))
                seconds = time.monotonic() - started
                log.info("compiled for %s in %.1f s", architecture, seconds)
    return found
