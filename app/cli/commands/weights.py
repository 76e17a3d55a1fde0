"""`darkroom weights`: download, verify or list published weights."""

import argparse

from app.cli import offline
from app.cli.flags.settings_flags import add_settings
from models.settings import Settings

EXAMPLES = (
    "darkroom weights list",
    "darkroom weights fetch resnet50",
    "darkroom weights verify imagenet1k_v1",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("action", choices=["fetch", "verify", "list"])
    parser.add_argument(
        "name",
        nargs="?",
        default="imagenet1k_v1",
        help="weights as `list` names them, or a network (default: imagenet1k_v1)",
    )
    add_settings(parser, ["cache_folder"])


def run(settings: Settings, action: str, name: str) -> int:
    """Do what `action` says with the weights called `name`."""
    return offline.manage_weights(settings, action, name)
