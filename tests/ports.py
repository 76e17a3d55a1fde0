"""Free TCP ports of 127.0.0.1 for servers that are told their port before they start."""

import errno
import os
import random
import socket
from pathlib import Path

CHOICES = random.SystemRandom()  # `random.seed` of a test must not lead two servers to one port
NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""The number of this process among those that run tests: each chooses from ports of its own."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that no socket is bound to at the moment.

    It lies outside the range from which the kernel serves outgoing connections and sockets that
    ask for any port. A port of that range may be taken again before the server binds it.
    """
    clients = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    below = max(int(clients[0]), 12_000)
    while True:
        port = CHOICES.randrange(10_000 + NUMBER % 8, below, 8)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
