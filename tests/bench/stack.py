"""The CUDA libraries that a result was measured with; nothing where there are none."""

from importlib.util import find_spec


def cuda_stack() -> dict[str, str | None] | None:
    """Return the versions of torch, of its CUDA, of CuPy, NVRTC and nvJPEG."""
    if find_spec("cupy") is None:
        return None
    from workers.engines.cuda.kernels import versions

    return versions()
