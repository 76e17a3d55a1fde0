"""A flag for each setting, from its declaration in `models.settings`; values that shells offer."""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import shtab

from models.networks.registry import NETWORKS
from models.settings import PREFIX, Settings, in_sections

LOCAL = (
    "threads",
    "gpus",
    "front_ends",
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

KINDS: Mapping[object, str] = {
    int: "N",
    float: "SECONDS",
    bool: "true|false",
    Path: "PATH",
    Path | None: "PATH",
}
"""The words for values of settings in the help, by type; the name of a setting has its unit."""

VALUES = {
    "networks": tuple(NETWORKS),
    "weights": ("auto", "imagenet1k_v1", "bundled", "random"),
    "log_level": ("debug", "info", "warning", "error"),
}
"""Values that shells offer for settings whose type is text."""


def complete_with(action: argparse.Action, values: Sequence[str]) -> None:
    """Let shells offer these values; further values stay allowed.

    A list of choices would be shown in the help too, and no other value be allowed.
    """
    words = " ".join(shlex.quote(each) for each in values)
    vars(action)["complete"] = shtab.cmd(f"printf '%s\\n' {words}")


def complete_files(action: argparse.Action) -> None:
    """Let shells offer the names of files."""
    vars(action)["complete"] = shtab.FILE


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add a flag for each of these settings, in the sections of the settings."""
    parser.epilog = f"Every setting is also a variable: --max-batch-size is {PREFIX}MAX_BATCH_SIZE."
    for title, section in in_sections(names, Settings.model_fields).items():
        group = parser.add_argument_group(title)
        for name in section:
            _add_setting(group, name)


def _add_setting(group: "argparse._ArgumentGroup", name: str) -> None:
    field = Settings.model_fields[name]
    default = "~/.cache/darkroom" if field.default_factory else field.default
    default = ",".join(default) if isinstance(default, tuple) else default
    shown = "none" if default in (None, "") else default
    flags = ["--" + name.replace("_", "-"), *(["--env-file"] if name == "settings_file" else [])]
    made = group.add_argument(
        *flags,
        metavar=KINDS.get(field.annotation, "VALUE"),
        help=f"{field.description} (default: {shown})".replace("%", "%%"),
    )
    if field.annotation in (Path, Path | None):
        complete_files(made)
    elif isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        complete_with(made, [each.value for each in field.annotation])
    elif name in VALUES:
        complete_with(made, VALUES[name])
