"""Limits of a decoder process: memory, CPU time, descriptors and system calls.

The limits come in two kinds. Those of the process are set once and can never be raised again: they
hold even for code that a hostile file has smuggled in. Those of the image are set for each one by
what its header claims: a file that claims 64 × 64 pixels and makes the decoder allocate a gigabyte
fails alone, long before the machine is short of memory.
"""

import ctypes
import os
import resource
import signal

from app.decoders.child import seccomp

BYTES_PER_PIXEL = 40
"""The most that decoding takes at a time, as measured: Pillow's 4 bytes a pixel, floats and 32-bit
integers several times over while they are scaled, an AVIF's reference frames."""

ENCODED_BYTES_PER_PIXEL = 120
"""The most that encoding takes at a time; an AVIF in full chroma does."""

HEADER_BYTES = 96 << 20
"""Bytes beside a file and its pixels: tables, profiles and chunks that libraries unpack."""

COPIES_OF_FILE = 6
"""Copies of a file that parsers may make: some collect its parts, inflate them and join them."""

MIN_SECONDS = 2.0
"""CPU seconds that any image gets, however small it is; reading a header gets as much."""

_DESCRIPTORS = 16
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_DUMPABLE = 1, 15, 4


def end_with(parent: int) -> None:
    """End this process when `parent`, which started it, ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that ended before the call above sends no signal any more.
    if os.getppid() != parent:
        os._exit(0)


def enter(max_pixels: int, max_file: int) -> str:
    """Sandbox this process permanently; return the part that the kernel lacks, or ""."""
    _prctl(_PR_SET_NAME, b"darkroom-decode")
    most = _data_bytes() + HEADER_BYTES + COPIES_OF_FILE * max_file
    most += ENCODED_BYTES_PER_PIXEL * max_pixels
    _lower(resource.RLIMIT_DATA, most, most)
    # The limit holds for memory files too, through which pixels leave this process.
    _lower(resource.RLIMIT_FSIZE, *2 * (4 * max_pixels + max_file + (1 << 20),))
    _lower(resource.RLIMIT_NOFILE, _DESCRIPTORS, _DESCRIPTORS)
    _lower(resource.RLIMIT_CORE, 0, 0)
    # Other processes of this user can neither trace this one nor read its memory (ptrace(2)).
    _prctl(_PR_SET_DUMPABLE, 0)
    _drop_capabilities()
    return seccomp.install()


class Allowance:
    """Limits of the present image. Make it before `enter`, after which /proc cannot be read."""

    def __init__(self) -> None:
        self._base = _data_bytes()

    def grant(
        self, file: int, pixels: int, seconds: float, per_pixel: int = BYTES_PER_PIXEL
    ) -> None:
        """Allow memory for a file of `file` bytes with `pixels` pixels, and `seconds` of CPU time.

        More memory is a MemoryError, or what a library makes of it; more time ends the process by
        SIGPROF, which nothing here handles.
        """
        wanted = self._base + HEADER_BYTES + COPIES_OF_FILE * file + per_pixel * pixels
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, most))
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def end(self) -> None:
        """Stop the clock until the next image."""
        signal.setitimer(signal.ITIMER_PROF, 0)


def seconds_for(pixels: int, max_pixels: int, most: float) -> float:
    """Return the CPU seconds of an image of `pixels` if one of `max_pixels` may take `most`."""
    return min(most, max(MIN_SECONDS, 2 * most * pixels / max_pixels))


def _data_bytes() -> int:
    """Return the bytes of private writable memory, which RLIMIT_DATA counts (proc(5))."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def _lower(name: int, soft: int, hard: int) -> None:
    most = resource.getrlimit(name)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(name, (soft, hard))


def _prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _drop_capabilities() -> None:
    """Give up all capabilities of root, such as raising limits again (capabilities(7))."""
    # _LINUX_CAPABILITY_VERSION_3 and 0, which is this thread; then three empty sets in two halves.
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capset(version_3, none)
