"""A trace of everything that happens on the device, in Chrome's format (chrome://tracing)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


@contextmanager
def traced(path: Path) -> Iterator[None]:
    """Write what the block does to `path`: kernels and copies by stream, stages by thread."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        yield
    profiler.export_chrome_trace(str(path))


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name what the block starts, in traces and (NVTX) for NVIDIA's own tools."""
    with torch.profiler.record_function(name), torch.cuda.nvtx.range(name):
        yield
