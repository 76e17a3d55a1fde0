"""The interface of every command, and the flags that several of them have."""

import argparse
from collections.abc import Sequence
from typing import Any, Protocol

from models.settings import PREFIX, Settings

LOCAL = (
    "threads",
    "gpus",
    "max_batch_size",
    "max_pixels",
    "fetch_allowed_networks",
    "fetch_ports",
    "fetch_allowed_hosts",
)
"""The settings that have a meaning without a server."""

WEIGHTS = (
    "networks",
    "weights",
    "weights_labels",
    "weights_sha256",
    "cache_folder",
    "precision",
)
"""The settings that choose the networks, their weights and their labels."""

FILES = "files or URLs; - is standard input"


class Command(Protocol):
    """A module of this package."""

    def declare(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    def run(self, settings: Settings, **options: Any) -> int:
        """Run the command; return the exit code."""


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add one flag for each of these settings."""
    parser.epilog = f"Every setting is also a variable: --max-batch-size is {PREFIX}MAX_BATCH_SIZE."
    group = parser.add_argument_group("settings")
    for name in names:
        field = Settings.model_fields[name]
        default = field.get_default(call_default_factory=True, validated_data={})
        default = ",".join(default) if isinstance(default, tuple) else default
        shown = "none" if default in (None, "") else default
        group.add_argument(
            "--" + name.replace("_", "-"),
            metavar=name.rsplit("_", 1)[-1].upper(),
            help=f"{field.description} (default: {shown})".replace("%", "%%"),
        )
