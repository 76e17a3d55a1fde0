"""Tune the C library's allocator, which keeps the memory of ordinary images and returns the memory
of large images, and Python's garbage collector.
"""

import ctypes
import gc
import sys

from models.usable_cpus import usable_cpus

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

LARGE = 32 << 20
"""Bytes of an allocation that goes back to the kernel as soon as it is freed. The largest buffer of
a batch of 8 on a CPU has 26 MB."""

YOUNG = 20_000
"""New containers between two collections. With Python's own 700 they took 5 % of a front end's
time; nearly all objects of a request are freed without them."""


def freeze() -> None:
    """Freeze the objects alive after a start so that the garbage collector never scans them."""
    gc.freeze()
    gc.set_threshold(YOUNG)


def keep_freed_memory() -> None:
    """Tell glibc not to give the buffers of ordinary images and batches back to the kernel.

    Taking the page faults again costs a fifth of the time of a forward pass, and a twelfth of
    that of encoding a small photo. Threads share as many arenas as there are cores: an arena of its
    own would keep the memory of the largest image of each thread.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        # Setting either threshold also ends glibc's own adaptation of both (mallopt(3)), so both
        # are set.
        libc.mallopt(_MMAP_THRESHOLD, LARGE)
        libc.mallopt(_TRIM_THRESHOLD, 512 << 20)
        libc.mallopt(_ARENA_MAX, max(2, len(usable_cpus())))


def return_freed_memory() -> None:
    """Give the free pages of all arenas back to the kernel; takes a few milliseconds."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
