"""Traces of everything that happens on the device, in Chrome's format (chrome://tracing)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

_TRACING = threading.Event()
"""Set while this process writes a trace: only then is it worth the time to name a stage in it."""


@contextmanager
def traced(path: Path) -> Iterator[None]:
    """Write the work of the block to `path`: kernels and copies by stream, stages by thread.

    Threads that run already are traced as well, which torch does only where it is asked to.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    everyone = _ExperimentalConfig(profile_all_threads=True)
    # Without `acc_events` torch 2.11 warns about events of earlier cycles, and there are none.
    with profile(activities=activities, experimental_config=everyone, acc_events=True) as profiler:
        _TRACING.set()
        try:
            yield
        finally:
            _TRACING.clear()
    profiler.export_chrome_trace(str(path))


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Name the work that the block starts, in traces and (by NVTX) in NVIDIA's own tools."""
    named = torch.profiler.record_function(name) if _TRACING.is_set() else nullcontext()
    with named, torch.cuda.nvtx.range(name):
        yield
