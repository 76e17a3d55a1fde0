"""`darkroom completion`: print the completion script of a shell, made by shtab."""

import argparse

import shtab

from app.cli.standard_output import show
from models.exit_codes import ExitCode

SHELLS = ("bash", "zsh", "fish")

EXAMPLES = (
    "darkroom completion bash > ~/.local/share/bash-completion/completions/darkroom",
    "darkroom completion zsh > ~/.zfunc/_darkroom",
    "darkroom completion fish > ~/.config/fish/completions/darkroom.fish",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(_settings: None, shell: str) -> int:
    """Print a script that completes commands, flags, and names of filters and networks."""
    from app.cli.parser import complete_parser

    show(shtab.complete(complete_parser(), shell) + "\n")
    return ExitCode.OK
