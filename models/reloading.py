"""Which settings a running server can take over, and where it reads them again.

The settings file has lines `DARKROOM_NAME=value`. The environment and flags win over it; neither
can change while the server runs, so only what stands in the file alone can be changed by SIGHUP.
"""

from models.settings import Settings, load_settings

FIXED = frozenset(
    {
        "host",
        "port",
        "metrics_host",
        "metrics_port",
        "front_ends",
        "gpus",
        "gpu_workers",
        "spare_workers",
        "tls_certificate",
        "tls_key",
        "settings_file",
        "log_level",
        "networks",
        "weights",
        "weights_labels",
        "weights_sha256",
        "cache_folder",
        "precision",
        "optimize",
        "threads",
    }
)
"""What needs a restart: sockets, the number of processes, and the network they compute with."""

IN_PLACE = frozenset(
    {
        "max_batch_size",
        "max_batch_pixels",
        "max_queue_delay",
        "max_images_per_request",
        "max_body_bytes",
        "max_images_in_flight",
        "max_bytes_in_flight",
        "max_arriving_bytes",
        "max_images_per_client",
        "max_bytes_per_client",
        "rate_limit",
        "default_deadline",
        "max_deadline",
        "fetch_concurrency",
        "fetch_per_host",
    }
)
"""What a server of one process changes without a restart; several processes replace each other."""


def reloaded(running: Settings, changeable: frozenset[str]) -> tuple[Settings, list[str]]:
    """The settings as they are now, and the names of changes that need a restart.

    Settings that are not `changeable` keep their value. ValueError says what is wrong.
    """
    found = load_settings(**running.given)
    changed = [n for n in Settings.model_fields if getattr(found, n) != getattr(running, n)]
    taken = {name: getattr(found, name) for name in changed if name in changeable}
    return running.model_copy(update=taken), [name for name in changed if name not in changeable]
