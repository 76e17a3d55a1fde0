"""The operator's lists of hosts and ports for fetching, checked at every redirect."""

from dataclasses import dataclass

import httpx

from models.domain.errors import AddressRefused
from models.ports import port_ranges
from models.settings import Settings

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class UrlRules:
    """Allowed `ports` as the setting writes them, and allowed `hosts`; no hosts means all of them.

    `*.example.org` allows every name below example.org, but not example.org.
    """

    ports: str
    hosts: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Settings) -> "UrlRules":
        """Return the rules that the operator chose."""
        return cls(settings.fetch_ports, settings.fetch_allowed_hosts)

    def check(self, url: httpx.URL) -> None:
        """Raise AddressRefused for a URL of http or https that is not allowed."""
        port = url.port or _DEFAULT_PORTS[url.scheme]
        if not any(port in ports for ports in port_ranges(self.ports)):
            raise AddressRefused(
                f"port {port} is not fetched from; allowed: {self.ports} (DARKROOM_FETCH_PORTS)"
            )
        host = url.raw_host.decode("ascii").lower().rstrip(".")
        if self.hosts and not any(_matches(host, each) for each in self.hosts):
            raise AddressRefused(
                f"{host} is not a host that images are fetched from; the operator chooses them "
                "with DARKROOM_FETCH_ALLOWED_HOSTS"
            )


def _matches(host: str, allowed: str) -> bool:
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed
