"""Parse the arguments of the command line, run one command, and return its exit code.

Only the module of the requested command is imported: the modules of all commands together take
seconds, and `--help` and `--version` need none of them.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from app.cli.commands import standard_output
from app.cli.commands.errors import CannotWrite, WrongUsage
from models.exit_codes import ExitCode
from models.version import VERSION

if TYPE_CHECKING:
    from app.cli.commands.command import Command
    from models.settings import Settings

COMMANDS = {
    "serve": "serve HTTP until stopped",
    "classify": "print the labels of images",
    "filter": "put images through filters",
    "profile": "trace the worker under load",
    "filters": "list the filters",
    "weights": "download, verify or list weights",
    "kernels": "compile the GPU's kernels in advance",
}
"""Each is a module of `app.cli.commands`."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, one of `ExitCode`."""
    try:
        return _run(arguments)
    except WrongUsage as error:
        print(f"darkroom: {error}", file=sys.stderr)
        return ExitCode.WRONG_USAGE
    except CannotWrite as error:
        standard_output.discard()
        print(f"darkroom: {error}", file=sys.stderr)
        return ExitCode.CANNOT_WRITE
    except BrokenPipeError:  # the reader of a pipe, as in `darkroom … | head`, has closed it
        standard_output.discard()
        return ExitCode.FAILED


def _run(arguments: Sequence[str]) -> int:
    try:
        options = vars(_parser(arguments).parse_args(arguments))
    finally:
        standard_output.flush()  # the text that --help or --version printed
    name = options.pop("command")
    code = _command(name).run(_settings(options), **options)
    standard_output.flush()
    return code


def _settings(options: dict[str, object]) -> "Settings":
    """Take the settings out of the options; WrongUsage names the ones that are not valid."""
    from pydantic import ValidationError

    from models.settings import Settings
    from models.settings_loading import load_settings
    from models.weights.sources import resolve_all

    given = {k: options.pop(k) for k in list(options) if k in Settings.model_fields}
    try:
        settings = load_settings(**{k: v for k, v in given.items() if v is not None})
        resolve_all(settings)
    except ValidationError as error:
        problems = (
            f"--{str(each['loc'][0]).replace('_', '-')}: {each['msg']} (given: {each['input']!r})"
            for each in error.errors(include_url=False)
        )
        raise WrongUsage("\ndarkroom: ".join(problems)) from None
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    return settings


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Declare all commands by name, and the arguments of those that `arguments` name."""
    parser = argparse.ArgumentParser(
        prog="darkroom",
        description="Labels and filtered images, over HTTP or right here; one answer per image.",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    actions = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="command"
    )
    for name, text in COMMANDS.items():
        own = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
        if name in arguments:
            _command(name).declare(own)
    return parser


def _command(name: str) -> "Command":
    return cast("Command", import_module(f"app.cli.commands.{name}"))
