"""The sections of the settings, by which help and tables group them."""

from collections.abc import Iterable

SECTIONS = {
    "host": "address and processes",
    "settings_file": "settings file, TLS, proxies, metrics and logs",
    "networks": "networks and cores",
    "max_batch_size": "batches",
    "max_images_per_request": "limits of requests",
    "max_images_per_client": "limits of each client",
    "max_pixels_in_flight": "decoding, encoding and their memory",
    "cache_control": "caching and debugging",
    "default_deadline": "deadlines",
    "body_timeout": "connections",
    "grace": "stopping and readiness",
    "fetch_allowed_networks": "images from URLs",
    "storage_allow": "images in folders and buckets",
    "webhook_secret": "webhooks",
    "data_folder": "jobs",
}
"""The first setting of each section, in the order of `Settings`, and the title of the section."""


def in_sections(names: Iterable[str], order: Iterable[str]) -> dict[str, list[str]]:
    """Return the given names by the titles of their sections, both in the order of `order`."""
    wanted, found, title = set(names), dict[str, list[str]](), ""
    for name in order:
        title = SECTIONS.get(name, title)
        if name in wanted:
            found.setdefault(title, []).append(name)
    return found
