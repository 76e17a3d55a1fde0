"""An origin of URLs that misbehaves as an attack says."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[[socket.socket], None]
"""What the origin does with a connection from which it has read nothing yet."""


@contextmanager
def listening(address: str, talk: Talk, port: int = 0) -> Iterator[int]:
    """Call `talk` with each connection, in a thread of its own; yield the port.

    An OSError of `talk`, such as that of a client that has left, ends its connection only.
    """
    listener = socket.create_server((address, port), backlog=512)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=one, args=(connection,), daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            talk(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
