"""A flag for each setting, from its declaration in `models.settings`; values that shells offer."""

import argparse
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from models.networks.registry import NETWORKS
from models.settings import PREFIX, Settings, in_sections

OFFERED = "darkroom_offered"
"""The attribute of an action that holds the values that shells offer; None stands for files."""

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

KINDS = {
    "host": "ADDRESS",
    "front_ends": "N",
    "gpus": "N",
    "gpu_workers": "N",
    "decoders": "N",
    "trusted_proxies": "NETWORKS",
    "fetch_allowed_networks": "NETWORKS",
    "cors_origins": "URLS",
    "fetch_ports": "LIST",
    "fetch_allowed_hosts": "LIST",
    "networks": "LIST",
    "storage_allow": "ADDRESSES",
    "storage_allow_write": "ADDRESSES",
    "jobs_database": "URL",
    "weights": "NAME|FILE",
    "weights_labels": "FILE",
    "weights_sha256": "DIGEST",
    "log_level": "NAME",
    "log_format": "NAME",
    "optimize": "NAME",
    "precision": "NAME",
    "rate_limit": "N/N",
    "result_cache": "BYTES",
}
"""The words for values of settings whose type does not tell."""

ALIASES = {"settings_file": ("--env-file",)}
"""Further flags of a setting."""

VALUES = {
    "networks": tuple(NETWORKS),
    "weights": ("auto", "imagenet1k_v1", "bundled", "random"),
    "log_level": ("debug", "info", "warning", "error"),
}
"""Values that shells offer for settings whose type is text."""


def complete_with(action: argparse.Action, values: Sequence[str]) -> None:
    """Let shells offer these values; further values stay allowed. `completion.py` reads the
    mark.
    """
    vars(action)[OFFERED] = tuple(values)


def complete_files(action: argparse.Action) -> None:
    """Let shells offer the names of files."""
    vars(action)[OFFERED] = None


def add_settings(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add a flag for each of these settings, in the sections of the settings."""
    parser.epilog = f"Every setting is also a variable: --max-batch-size is {PREFIX}MAX_BATCH_SIZE."
    for title, section in in_sections(names, Settings.model_fields).items():
        group = parser.add_argument_group(title)
        for name in section:
            _add_setting(group, name)


def _value(name: str, kind: object) -> str:
    """Return the word for a value in the help: its unit or its kind."""
    words = name.split("_")
    if "folder" in words:
        return "FOLDER"
    if kind in (Path, Path | None):
        return "FILE"
    if "bytes" in words:
        return "BYTES"
    if "pixels" in words:
        return "PIXELS"
    kinds = {int: "N", float: "SECONDS", bool: "true|false"}
    return KINDS.get(name) or (kinds.get(kind) if isinstance(kind, type) else None) or "TEXT"


def _add_setting(group: "argparse._ArgumentGroup", name: str) -> None:
    field = Settings.model_fields[name]
    default = "~/.cache/darkroom" if field.default_factory else field.default
    default = ",".join(default) if isinstance(default, tuple) else default
    shown = "none" if default in (None, "") else default
    flags = ["--" + name.replace("_", "-"), *ALIASES.get(name, ())]
    made = group.add_argument(
        *flags,
        metavar=_value(name, field.annotation),
        help=f"{field.description} (default: {shown})".replace("%", "%%"),
    )
    if field.annotation in (Path, Path | None):
        complete_files(made)
    elif isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        complete_with(made, [each.value for each in field.annotation])
    elif name in VALUES:
        complete_with(made, VALUES[name])
