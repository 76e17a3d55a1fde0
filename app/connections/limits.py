"""Compute the limits of connections from the settings and the limit of open files."""

from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

from models.settings import Network, Settings

try:
    import resource
except ImportError:  # pragma: no cover (Windows has no such limit)
    resource = None  # type: ignore[assignment]  # the name of a module

WITHOUT_LIMIT = 1 << 20
"""Descriptors that are assumed where the operating system states no limit."""

SPARE_DESCRIPTORS = 256
"""Descriptors that connections never use: for logs, spooled files, fetched URLs and workers."""

LEAST_DISCARDED = 64 << 20
"""Bytes that a refused client may send in any case, even if the limit of bodies is smaller: many
clients read nothing before they have sent everything. To discard 1 GiB took 0.15 s of CPU time."""

LEAST_CONNECTIONS = 16
"""Connections that are allowed even if there are too few descriptors."""

HEADER_BYTES, HEADER_LINES, URL_BYTES = 65536, 100, 32768
"""Bytes of a URL and its headers, lines of headers, and bytes of a URL."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections. Sizes are in bytes, times in seconds, rates in bytes per second."""

    header_timeout: float
    idle_timeout: float
    body_timeout: float
    header_bytes: int
    header_lines: int
    url_bytes: int
    min_rate: int
    discard_bytes: int
    """Bytes that are read at most of a body whose request was refused."""
    connections: int
    per_client: int
    trusted: tuple[Network, ...] = ()

    @classmethod
    def of(cls, settings: Settings, descriptors: int) -> "ConnectionLimits":
        """Return the limits for a process that may open `descriptors` files.

        One client never gets more than three quarters of all connections.
        """
        room = max(LEAST_CONNECTIONS, descriptors - SPARE_DESCRIPTORS)
        connections = min(settings.max_connections, room)
        return cls(
            settings.header_timeout,
            settings.idle_timeout,
            settings.body_timeout,
            HEADER_BYTES,
            HEADER_LINES,
            URL_BYTES,
            settings.min_body_rate,
            max(LEAST_DISCARDED, 2 * settings.max_body_bytes),
            connections,
            min(settings.max_connections_per_client, max(1, connections * 3 // 4)),
            settings.trusted_proxies,
        )

    def client(self, host: str) -> str | None:
        """Return the key by which the connections of `host` are counted: of IPv6 addresses the /64.

        Return None for a trusted proxy, whose connections carry requests of many clients, and for a
        Unix socket.
        """
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:  # a Unix socket
            return None
        if address.version == 6 and address.ipv4_mapped:
            address = address.ipv4_mapped
        if any(address in network for network in self.trusted):
            return None
        if address.version == 6:
            return f"{address.exploded[:19]}::/64"
        return str(address)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit that holds now."""
    if resource is None:
        return WITHOUT_LIMIT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel's own limit may be lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft
