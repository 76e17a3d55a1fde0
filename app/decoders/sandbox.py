"""Limits of a decoder process: memory, CPU time, descriptors and system calls.

The limits come in two kinds. Those of the image are set for each one by the estimate by which the
service let it in: a file that claims 64 × 64 pixels and makes the decoder allocate a gigabyte fails
alone, long before the machine is short of memory.

Those of the process are set once and can never be raised again, so they hold even for code that a
hostile file has smuggled in. They allow what the largest image needs: private memory
(RLIMIT_DATA), and with it all mappings (RLIMIT_AS). If the host runs out of memory nevertheless,
the kernel ends decoder processes first.

System calls are given up by a seccomp filter, which is an allow-list. A decoder allocates and frees
memory, and answers on a socket that it has had from the start. It never opens a path, creates a
socket or a file, starts or signals a process or thread, or makes memory executable, so none of
these calls is on the list. A call that is not on it fails with EPERM instead of killing the
process: a C library of another version may try a call that it can do without (sched_getaffinity,
madvise variants), and an image must not fail for that. Code that took the process over gains
nothing from the difference: the call is refused.

The program is classic BPF over `struct seccomp_data` (see seccomp(2)): load the architecture, which
must be the one this table is for, then the number of the call, and compare. Of mmap and mprotect
the protection is compared too.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
from contextlib import suppress
from pathlib import Path

from app.decoders.memory import opening_bytes

BYTES_PER_PIXEL = 40
"""Most bytes that opening a file may take for each pixel of the largest image that is allowed;
libwebp allocates two canvases, which take 9."""

SPARE_BYTES = 32 << 20
"""Bytes beside the estimate of an image: tables, stripes, and gaps between allocations."""

ENCODED_BYTES_PER_PIXEL = 120
"""The most that encoding takes at a time; an AVIF in full chroma does."""

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
    with suppress(OSError):  # a container may not let it; then the kernel weighs it as any other
        Path("/proc/self/oom_score_adj").write_text("1000")
    used, mapped = _memory(Path("/proc/self/statm").read_bytes())
    more = opening_bytes(max_file) + ENCODED_BYTES_PER_PIXEL * max_pixels
    _lower(resource.RLIMIT_DATA, used + more)
    _lower(resource.RLIMIT_AS, mapped + 2 * more)  # anonymous shared memory counts here alone
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_NOFILE, _DESCRIPTORS)
    _lower(resource.RLIMIT_CORE, 0)
    # Other processes of this user can neither trace this one nor read its memory (ptrace(2)).
    _prctl(_PR_SET_DUMPABLE, 0)
    _drop_capabilities()
    return give_up_calls()


class Allowance:
    """Limits of the present image. Make it before `enter`, after which /proc cannot be opened."""

    def __init__(self) -> None:
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._before = 0

    def begin(self) -> None:
        """Begin an image: what it is granted stands beside what the process has now.

        The process also has what the C library kept of former images, usually up to 64 MB.
        An image with a wrong estimate may find its memory there, and is decoded then.
        """
        self._before, _ = _memory(os.pread(self._statm, 256, 0))

    def grant(self, n_bytes: int, seconds: float) -> None:
        """Allow `n_bytes` of memory for the image, and `seconds` of CPU time from now on.

        More memory is a MemoryError, or what a library makes of it; more time ends the process by
        SIGPROF, which nothing here handles.
        """
        wanted = self._before + n_bytes
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, most))
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def end(self) -> None:
        """Stop the clock until the next image."""
        signal.setitimer(signal.ITIMER_PROF, 0)


def decoding_bytes(estimate: int, file: int) -> int:
    """Return the bytes that an image may take whose decoding is estimated at `estimate` bytes.

    A wrong estimate is an error of its image then. Parsers may hold a second copy of the file.
    """
    return estimate + estimate // 5 + file + SPARE_BYTES


def seconds_for(pixels: int, max_pixels: int, most: float) -> float:
    """Return the CPU seconds of an image of `pixels` if one of `max_pixels` may take `most`."""
    return min(most, max(MIN_SECONDS, 2 * most * pixels / max_pixels))


def _memory(statm: bytes) -> tuple[int, int]:
    """Return the bytes of private writable memory, which RLIMIT_DATA counts, and of all mappings.

    `statm` is the content of /proc/self/statm (proc(5)).
    """
    pages = statm.split()
    return int(pages[5]) * resource.getpagesize(), int(pages[0]) * resource.getpagesize()


def _lower(name: int, limit: int) -> None:
    most = resource.getrlimit(name)[1]
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(name, (limit, limit))


def _prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _drop_capabilities() -> None:
    """Give up all capabilities of root, such as raising limits again (capabilities(7))."""
    # _LINUX_CAPABILITY_VERSION_3 and 0, which is this thread; then three empty sets in two halves.
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capset(version_3, none)


_NUMBERS = {
    "x86_64": (
        0xC000003E,
        *(0, 1, 3, 5, 8, 11, 12, 13, 14, 15),  # read write close fstat lseek munmap brk rt_sig*
        *(17, 18, 19, 20, 24, 25, 28, 35, 38, 39),  # pread… mremap madvise nanosleep setitimer
        *(46, 47, 60, 96, 98, 186, 202),  # sendmsg recvmsg exit gettimeofday getrusage gettid futex
        *(228, 230, 231, 302, 318),  # clock_* exit_group prlimit64 getrandom
    ),
    "aarch64": (
        0xC00000B7,
        *(63, 64, 57, 80, 62, 215, 214, 134, 135, 139),
        *(67, 68, 65, 66, 124, 216, 233, 101, 103, 172),
        *(211, 212, 93, 169, 165, 178, 98),
        *(113, 115, 94, 261, 278),
    ),
}
"""Of each machine: the architecture as in linux/audit.h, then the allowed calls in one order."""

_PROTECTED = {"x86_64": (9, 10), "aarch64": (222, 226)}
"""mmap and mprotect: allowed without PROT_EXEC."""

_LOAD, _EQUAL, _ABOVE, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: errno 1, EPERM
_NUMBER_AT, _ARCHITECTURE_AT, _THIRD_ARGUMENT_AT = 0, 4, 32
_OTHER_ABI = 0x40000000  # x32 calls on x86_64

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def give_up_calls() -> str:
    """Give up all other system calls permanently; return "", or why the kernel cannot."""
    machine = platform.machine()
    if machine not in _NUMBERS:
        return f"no seccomp filter for {machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return "no_new_privs: the kernel does not have it"
    code = _code(machine)
    program = _Program(len(code) // 8, code)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0):
        return f"no seccomp filter: error {ctypes.get_errno()} of the kernel"
    return ""


def _code(machine: str) -> bytes:
    architecture, *allowed = _NUMBERS[machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        # A 32-bit call on a 64-bit kernel has numbers of its own, so none in the table would mean
        # what it should.
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_ABOVE, 0, 1, _OTHER_ABI),
        (_RETURN, 0, 0, _REFUSE),
    ]
    for number in allowed:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for number in _PROTECTED[machine]:
        code += [
            (_EQUAL, 0, 4, number),
            # The low half of the argument: the bits of protections are all there.
            (_LOAD, 0, 0, _THIRD_ARGUMENT_AT),
            (_BITS, 0, 1, 4),  # PROT_EXEC
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *each) for each in code)
