"""A seccomp filter for decoder processes: the few system calls that decoding needs, no others.

The filter is an allow-list. A decoder allocates and frees memory, and answers on a socket that it
has had from the start. It never opens a path, creates a socket or a file, starts or signals a
process or thread, or makes memory executable, so none of these calls is on the list. A call that is
not on it fails with EPERM instead of killing the process: a C library of another version may try a
call that it can do without (sched_getaffinity, madvise variants), and an image must not fail for
that. Code that took the process over gains nothing from the difference: the call is refused.

The program is classic BPF over `struct seccomp_data` (see seccomp(2)): load the architecture, which
must be the one this table is for, then the number of the call, and compare. Of mmap and mprotect
the protection is compared too.
"""

import ctypes
import platform
import struct

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


def install() -> str:
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
