"""NVRTC by CuPy's binding: from CUDA text to a cubin. It needs no GPU."""

from collections.abc import Sequence

from cupy.cuda import nvrtc


class Nvrtc:
    """The compiler that came with CuPy or torch; several threads may compile at a time."""

    def __init__(self) -> None:
        major, minor = nvrtc.getVersion()
        self.version = f"nvrtc {major}.{minor}"

    @property
    def architectures(self) -> frozenset[str]:
        """Return the architectures that it can compile for, as `sm_90`."""
        return frozenset(f"sm_{each}" for each in nvrtc.getSupportedArchs())

    def compile(self, text: str, name: str, options: Sequence[str]) -> bytes:
        """Return the cubin; RuntimeError carries the compiler's messages."""
        program = nvrtc.createProgram(text, name, (), ())
        try:
            nvrtc.compileProgram(program, tuple(options))
            return bytes(nvrtc.getCUBIN(program))
        except nvrtc.NVRTCError as error:
            raise RuntimeError(f"{name}: {error}: {nvrtc.getProgramLog(program)}") from error
        finally:
            nvrtc.destroyProgram(program)
