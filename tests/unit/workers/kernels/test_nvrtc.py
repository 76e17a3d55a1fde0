"""NVRTC compiles the text for every supported GPU, on a machine without one."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from workers.kernels import loader

nvrtc = pytest.importorskip("cupy", reason="CuPy is not installed").cuda.nvrtc

ARCHITECTURES = (75, 80, 86, 89, 90, 100)


def compiled(architecture: int) -> bytes:
    """Return the cubin; AssertionError carries the compiler's messages."""
    program = nvrtc.createProgram(loader.source(), "kernels.cu", (), ())
    options = (*loader.OPTIONS, f"-arch=sm_{architecture}", "-ftz=true")
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError as error:
        raise AssertionError(nvrtc.getProgramLog(program)) from error
    return bytes(nvrtc.getCUBIN(program))


@pytest.mark.timeout(480)  # 12 s for each architecture on a core of its own
def test_all_kernels_compile_for_every_architecture() -> None:
    with ThreadPoolExecutor() as compilers:
        cubins = list(compilers.map(compiled, ARCHITECTURES))
    for cubin in cubins:
        assert all(name.encode() in cubin for name in loader.KERNELS)
