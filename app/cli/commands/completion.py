"""`darkroom completion`: print the completion script of a shell, made by shtab."""

import argparse
import shlex

from app.bulk.errors import WrongUsage
from app.cli.flags import OFFERED
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
    try:
        from shtab import FILE, cmd, complete
    except ImportError:
        raise WrongUsage("completion: install the package shtab, which makes the script") from None
    from app.cli.parser import complete_parser

    parser = complete_parser()
    for action in _actions(parser):
        if OFFERED in vars(action):
            words = vars(action)[OFFERED]
            # A list of choices would be shown in the help too, and no other value be allowed.
            offered = FILE if words is None else cmd(_printing(words))
            vars(action)["complete"] = offered
    show(complete(parser, shell) + "\n")
    return ExitCode.OK


def _printing(words: tuple[str, ...]) -> str:
    """Return the shell command that prints each word on a line of its own."""
    return "printf '%s\\n' " + " ".join(shlex.quote(each) for each in words)


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the actions of a parser and of all its commands."""
    found: list[argparse.Action] = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                found += _actions(own)
    return found
