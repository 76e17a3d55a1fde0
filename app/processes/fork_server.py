"""Fork processes from one that has imported what they need.

The supervisor starts it as `python -m app.processes.fork_server NAME`. Its standard input is a
socket: the first message names the modules to import, each further one a process to fork. Forking
is safe here, because this process has no threads of its own, computes nothing and has not used a
GPU; OpenBLAS ends its threads before a fork. It ends when the socket closes.
"""

import contextlib
import gc
import json
import os
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from app.processes.member import run
from app.processes.title import retitle
from models.exit_codes import ExitCode

MOST = 1 << 16
"""Bytes of a message."""


def serve(run: Callable[[], int]) -> int:
    """Import, say so, and fork until the supervisor has gone.

    Each forked process runs `run`, and this function returns its exit code there.
    """
    control = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    orders: dict[str, Any] = json.loads(control.recv(MOST) or b"{}")
    for name in orders.get("imports", ()):
        with contextlib.suppress(ImportError):  # the process that needs it tells what is missing
            import_module(name)
    module, _, function = orders.get("unless", "").rpartition(".")
    if module and getattr(import_module(module), function)():
        print(f"nothing is forked: {module}.{function}() is true", file=sys.stderr)
        return ExitCode.FAILED
    gc.collect()
    gc.freeze()  # so that collections in the processes do not copy the pages that all share
    control.send(b"{}")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MOST, 2)
        if not message:
            return ExitCode.ORPHANED
        order = json.loads(message)
        found = _forked()
        if found == 0:
            _begin(order, control, descriptors[0])
            return run()
        control.send(json.dumps([found, descriptors[1]]).encode())
        for each in descriptors:
            os.close(each)


def _forked() -> int | str:
    """Fork; return the id of the new process, 0 in it, or what went wrong.

    A process between the two ends at once. The new one thereby becomes a child of the supervisor,
    which has asked the kernel for that, and which alone waits for its end.
    """
    reading, writing = os.pipe()
    try:
        between = os.fork()
        if not between:
            _fork_again(writing)
            return 0
        os.close(writing)
        os.waitpid(between, 0)
        return json.loads(os.read(reading, MOST) or b'"it ended"')  # type: ignore[no-any-return]  # written by _fork_again
    except OSError as error:
        return str(error)
    finally:
        os.close(reading)


def _fork_again(writing: int) -> None:
    """Fork, write the id of the new process, and end; return in the new process alone."""
    try:
        pid = os.fork()
        told: int | str = pid
    except OSError as error:
        pid, told = -1, str(error)
    if pid:
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)


def _begin(order: dict[str, str], control: socket.socket, orders: int) -> None:
    """Become the process that was asked for, with `orders` as its standard input.

    The descriptor by which it reports that it is ready has the number that the supervisor is told.
    """
    control.close()
    os.setsid()
    os.dup2(orders, sys.stdin.fileno())
    os.close(orders)
    retitle({order["server"]: order["module"], sys.argv[1]: order["name"]})
    sys.argv[1] = order["name"]


if __name__ == "__main__":
    sys.exit(serve(run))
