"""The interface of every command, and the flags that several of them have."""

import argparse
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from models.networks.registry import NETWORKS
from models.setting_sections import in_sections
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

FILES = "files, folders, archives (ZIP, TAR), patterns or URLs; - is standard input"

JSON = "JSON Lines on a terminal too (default: words there, JSON Lines elsewhere)"

ALIASES = {"settings_file": ("--env-file",)}
"""Further flags of a setting."""

VALUES = {
    "networks": tuple(NETWORKS),
    "weights": ("auto", "imagenet1k_v1", "bundled", "random"),
    "log_level": ("debug", "info", "warning", "error"),
}
"""Values that shells offer for settings whose type is text."""

OFFERED = "darkroom_offered"
"""The attribute of an action that holds the values for completion; None stands for files."""


class Command(Protocol):
    """A module of this package."""

    EXAMPLES: Sequence[str]
    """Lines of a shell that show how the command is used."""

    def declare(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    def run(self, settings: Any, **options: Any) -> int:
        """Run the command and return the exit code.

        `settings` are `Settings`, or None for a command that reads none (`app/cli/catalogue.py`).
        """


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add one flag for each of these settings, in the sections of the settings."""
    parser.epilog = f"Every setting is also a variable: --max-batch-size is {PREFIX}MAX_BATCH_SIZE."
    for title, section in in_sections(names, Settings.model_fields).items():
        group = parser.add_argument_group(title)
        for name in section:
            _add_setting(group, name)


def _add_setting(group: "argparse._ArgumentGroup", name: str) -> None:
    field = Settings.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data={})
    default = ",".join(default) if isinstance(default, tuple) else default
    shown = "none" if default in (None, "") else default
    flags = ["--" + name.replace("_", "-"), *ALIASES.get(name, ())]
    made = group.add_argument(
        *flags,
        metavar=name.rsplit("_", 1)[-1].upper(),
        help=f"{field.description} (default: {shown})".replace("%", "%%"),
    )
    if field.annotation in (Path, Path | None):
        complete_files(made)
    elif isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        complete_with(made, [each.value for each in field.annotation])
    elif name in VALUES:
        complete_with(made, VALUES[name])


def complete_with(action: argparse.Action, values: Sequence[str]) -> None:
    """Let shells offer these values; others stay allowed. `completion.py` reads the mark."""
    vars(action)[OFFERED] = tuple(values)


def complete_files(action: argparse.Action) -> None:
    """Let shells offer the names of files."""
    vars(action)[OFFERED] = None
