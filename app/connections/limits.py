"""The limits of connections, as the settings state them and the operating system allows them."""

from dataclasses import dataclass
from ipaddress import ip_address

from models.settings import Network, Settings

SPARE_DESCRIPTORS = 256
"""Descriptors that connections never take: logs, spooled files, fetched URLs, worker links."""

LEAST_DISCARDED = 64 << 20
"""Bytes that a refused client may go on sending, however small bodies must be: many clients read
nothing before they have sent everything. Throwing 1 GiB away took 0.15 s of CPU."""

LEAST_CONNECTIONS = 16
"""However few descriptors there are."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Sizes are bytes, times are seconds, rates are bytes per second."""

    header_timeout: float
    idle_timeout: float
    header_bytes: int
    header_lines: int
    url_bytes: int
    min_rate: int
    discard_bytes: int
    """The most that is read of a body after its request was refused."""
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
            settings.max_header_bytes,
            settings.max_header_lines,
            settings.max_url_bytes,
            settings.min_body_rate,
            max(LEAST_DISCARDED, 2 * settings.max_body_bytes),
            connections,
            min(settings.max_connections_per_client, max(1, connections * 3 // 4)),
            settings.trusted_proxies,
        )

    def client(self, host: str) -> str | None:
        """Return the key by which a client's connections are counted: IPv6 clients by their /64.

        None: a trusted proxy, whose connections carry the requests of many clients.
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
