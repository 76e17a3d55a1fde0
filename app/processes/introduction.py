"""Say once, when a server is ready, what it serves with, and warn where everybody may use it."""

import logging
from ipaddress import ip_address

from app.service import Service
from models.settings import Settings

log = logging.getLogger("darkroom.server")


def introduce(service: Service, settings: Settings) -> None:
    """Log one line: device, network, weights, address and keys; warn of an open server."""
    computing = service.computing()
    networks = [
        f"{each.name} ({'no weights' if each.model is None else each.model.record.name})"
        for each in computing.networks
    ]
    device = service.backend.load().device
    address = f"{settings.host}:{settings.port}"
    keys = "none" if service.keys is None else str(settings.api_keys_file)
    text = "device %s; networks %s; address %s; API keys %s"
    log.info(text, device, ", ".join(networks) or "none", address, keys)
    if service.keys is None and not _is_loopback(settings.host):
        log.warning(
            "everybody who can reach %s may use this server: set DARKROOM_API_KEYS_FILE, "
            "or listen at 127.0.0.1 behind a proxy",
            address,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
