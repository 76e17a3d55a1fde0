"""Bind sockets, and check TLS, before anything slow is loaded; accept when the server can answer.

Errors of an address show at once, and a client is refused while the server starts: in the queue of
a socket that listened earlier it waited for as long as the start took.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from app.admission.counters import Counters, Total
from models.settings import Settings

log = logging.getLogger("darkroom.server")

BACKLOG = 16384
"""Connections that the kernel queues until they are accepted; net.core.somaxconn bounds it."""

AT_ONCE = 64
"""Connections that are accepted in a turn of the event loop, so that requests go on beside."""

TURN = 0.002
"""Seconds in which a front end with fewer connections may accept before this front end does."""

NO_ROOM = 0.1
"""Seconds until the next try after a try that failed: for too many open files, say."""

TLS_END = 10.0
"""Seconds in which a client can read the last bytes and end TLS; asyncio itself would wait 30."""


def bind(host: str, port: int, flag: str = "") -> socket.socket:
    """Bind a socket to an address; the file name of the OSError is the address with the `flag`."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        error.filename = f"{host}:{port}{flag}"
        raise
    return bound


def bind_metrics(settings: Settings) -> list[socket.socket]:
    """Bind the port for metrics if the settings have one."""
    port = settings.metrics_port
    return [bind(settings.host, port, " (--metrics-port)")] if port else []


def is_listening(bound: socket.socket) -> bool:
    """Return whether a socket listens already."""
    return bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def announce(settings: Settings, listening: socket.socket) -> None:
    """Log the URL of a socket, such as `http://127.0.0.1:8000`, once it accepts connections."""
    url = f"unix:{listening.getsockname()}"
    if listening.family != socket.AF_UNIX:
        host, port = listening.getsockname()[:2]
        scheme = "https" if settings.tls_certificate else "http"
        url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    log.info("listening on %s", url)


def check_tls(settings: Settings) -> None:
    """Raise ValueError, which says what to do, if TLS is impossible with these settings."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None and key is not None:
        raise ValueError("--tls-key is given without --tls-certificate; give both, or neither")
    try:
        if certificate is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(
            f"--tls-certificate: {certificate} and its key cannot be used: {error}; "
            "both must be PEM files and belong together"
        ) from None


class ConnectionBalancer:
    """Acceptor of a front end, from its creation to `close`, which closes its socket.

    `connected` makes a protocol for each connection; `counters` have the connections of all front
    ends: the front end with the fewest takes the next. Left to the kernel, the process that wakes
    first takes nearly all. Sockets of their own (SO_REUSEPORT) would be even enough, but a front
    end that ends would reset the connections in its queue. A front end that is slow to take a
    connection loses it after `TURN`. `handshake` bounds the seconds of a TLS handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        connected: Callable[[], asyncio.Protocol],
        counters: Counters,
        tls: ssl.SSLContext | None = None,
        handshake: float = 10.0,
    ) -> None:
        self._socket = listening
        self._connected = connected
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        times = {"ssl_handshake_timeout": handshake, "ssl_shutdown_timeout": TLS_END}
        self._tls: dict[str, object] = {} if tls is None else {"ssl": tls, **times}
        self._pause: asyncio.TimerHandle | None = None
        self.taking: set[asyncio.Task[object]] = set()
        """Accepted connections that have not been given to their protocols yet."""
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)  # now and not before, because connections can be answered
        self._loop.add_reader(self._socket, self._accept)
        self._counters.add(Total.ACCEPTING, 1)

    def close(self) -> None:
        """Accept the connections that wait in the kernel, and no more; they all continue."""
        self._counters.add(Total.ACCEPTING, -1)
        self._loop.remove_reader(self._socket)
        while self._take():
            pass  # to close the socket would reset the connections in its queue
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to be closed."""

    def _accept(self) -> None:
        """Accept connections that wait, of which every front end is notified."""
        for _ in range(AT_ONCE):
            if not self._counters.fewest(Total.CONNECTIONS, len(self.taking)):
                # Another front end has fewer connections and is notified too. Without a pause this
                # process would be woken again and again until the other one has accepted.
                self._rest(TURN)
                return
            if not self._take():
                return

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._socket, self._accept)
        self._take()

    def _take(self) -> bool:
        """Accept a connection; return False if no connection waits."""
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False  # another front end was sooner, or the client has left
        except OSError as error:
            log.warning("no connection can be accepted: %s; raise the limit of open files", error)
            self._rest(NO_ROOM)
            return False
        self.taking.add(taking := self._loop.create_task(self._begin(connection)))
        taking.add_done_callback(self.taking.discard)
        return True

    async def _begin(self, connection: socket.socket) -> None:
        """After its TLS handshake, if there is one, the connection belongs to its protocol."""
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._connected,
                connection,
                **self._tls,  # type: ignore[arg-type]  # all of them are named above
            )
        except OSError as error:  # TLS errors and timeouts among them
            connection.close()
            log.debug("a connection was lost before its first byte: %s", error)
