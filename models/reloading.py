"""Read the settings again, and decide which of them a running server can change.

The settings file has lines `DARKROOM_NAME=value`. The environment and flags win over it; neither
can change while the server runs, so SIGHUP changes only settings that are in the file alone.
"""

from models.settings import Settings
from models.settings_loading import load_settings

FIXED = frozenset(
    {
        "host",
        "port",
        "metrics_host",
        "metrics_port",
        "grpc_port",
        "front_ends",
        "gpus",
        "gpu_workers",
        "tls_certificate",
        "tls_key",
        "settings_file",
        "log_level",
        "tracing",
        "networks",
        "weights",
        "weights_labels",
        "weights_sha256",
        "cache_folder",
        "precision",
        "optimize",
        "threads",
        "data_folder",
        "jobs_database",
    }
)
"""Settings that need a restart: sockets, the number of processes, the networks, and jobs."""

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
        "cache_control",
        "default_deadline",
        "max_deadline",
        "fetch_concurrency",
        "fetch_per_host",
    }
)
"""Settings that a server of one process changes in place; several processes are replaced."""


def reloaded(running: Settings, changeable: frozenset[str]) -> tuple[Settings, list[str]]:
    """Return the current settings, and the names of changes that need a restart.

    Settings that are not `changeable` keep their value. The text of ValueError states the fault.
    """
    found = load_settings(**running.given)
    changed = [n for n in Settings.model_fields if getattr(found, n) != getattr(running, n)]
    taken = {name: getattr(found, name) for name in changed if name in changeable}
    return running.model_copy(update=taken), [name for name in changed if name not in changeable]
