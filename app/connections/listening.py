"""Bind sockets, and check TLS, before anything slow is loaded; accept when the server can answer.

Errors of an address show at once, and a client is refused while the server starts: in the queue of
a socket that listened earlier it waited for as long as the start took.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable

from app.admission.counters import Counters, Total
from models.settings import Settings

log = logging.getLogger("darkroom.server")

BACKLOG = 16384
"""Connections that the kernel queues until they are accepted; net.core.somaxconn bounds it."""

PAUSE = 0.02
"""Seconds between two looks whether a socket listens."""

AT_ONCE = 64
"""Connections that are accepted in one turn of the event loop, so that requests go on beside."""

TURN = 0.002
"""Seconds in which a front end with fewer connections may accept before this front end does."""

NO_ROOM = 0.1
"""Seconds until the next try after a try that failed: for too many open files, say."""

TLS_END = 10.0
"""Seconds in which a client can read the last bytes and end TLS; asyncio itself would wait 30."""


def bind(host: str, port: int, *, family: int = socket.AF_UNSPEC) -> list[socket.socket]:
    """Bind a socket to every address of `host`; raises OSError with the address that is in use."""
    passive = socket.AI_PASSIVE
    found = socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, flags=passive)
    sockets: list[socket.socket] = []
    try:
        for kind, _, _, _, address in dict.fromkeys(found):
            if port == 0 and sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            sockets.append(made := socket.socket(kind, socket.SOCK_STREAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if kind == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                made.bind(address)
            except OSError as error:
                text = f"{error.strerror} (while attempting to bind on address {address!r})"
                raise OSError(error.errno, text) from None
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def bind_metrics(settings: Settings) -> list[socket.socket]:
    """Bind the port for metrics if the settings have one; the OSError has its address."""
    if not settings.metrics_port:
        return []
    try:
        return bind(settings.host, settings.metrics_port)
    except OSError as error:
        error.filename = f"{settings.host}:{settings.metrics_port} (--metrics-port)"
        raise


async def listens(bound: socket.socket) -> None:
    """Wait until another process lets a socket that it shares with this one listen."""
    while not is_listening(bound):  # noqa: ASYNC110
        await asyncio.sleep(PAUSE)


def is_listening(bound: socket.socket) -> bool:
    """Return whether a socket listens already."""
    return bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def announce(settings: Settings, sockets: Iterable[socket.socket]) -> None:
    """Log the URLs of the sockets once connections are accepted there."""
    log.info("listening on %s", " and ".join(url_of(settings, each) for each in sockets))


def url_of(settings: Settings, listening: socket.socket) -> str:
    """Return the URL of a listening socket, such as `http://127.0.0.1:8000`."""
    if listening.family == socket.AF_UNIX:
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.tls_certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def check_tls(settings: Settings) -> None:
    """Raise ValueError, which says what to do, if TLS is impossible with these settings."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise ValueError("--tls-key is given without --tls-certificate; give both, or neither")
        return
    for flag, path in (("--tls-certificate", certificate), ("--tls-key", key)):
        if path is not None and not path.is_file():
            raise ValueError(f"{flag}: there is no file {path}")
    try:
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
    first takes nearly all: 50 to 64 of 64 connections in a row, with four front ends. Sockets of
    their own (SO_REUSEPORT) would be even enough, 9 to 27 each, but a front end that ends would
    reset the connections in its queue. A front end that is slow to take a connection, or leaves,
    loses it to another front end after `TURN`. `handshake` bounds the seconds of a TLS handshake.
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
        self._tls: dict[str, object] = {}
        if tls is not None:
            times = {"ssl_handshake_timeout": handshake, "ssl_shutdown_timeout": TLS_END}
            self._tls = {"ssl": tls, **times}
        self._pause: asyncio.TimerHandle | None = None
        self._taking: set[asyncio.Task[object]] = set()
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

    @property
    def taking(self) -> bool:
        """Return whether an accepted connection has not been given to its protocol yet."""
        return bool(self._taking)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to be closed."""

    def _accept(self) -> None:
        """Accept connections that wait, of which every front end is notified."""
        for _ in range(AT_ONCE):
            if not self._counters.fewest(Total.CONNECTIONS, len(self._taking)):
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
        self._taking.add(taking := self._loop.create_task(self._begin(connection)))
        taking.add_done_callback(self._taking.discard)
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
