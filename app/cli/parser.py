"""Parse the arguments of the command line, run one command, and return its exit code.

Only the module of the requested command is imported: the modules of all commands together take
seconds, and `--help` and `--version` need none of them.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from app.bulk.errors import CannotWrite, EngineLost, WrongUsage
from app.cli import standard_output
from app.cli.catalogue import COMMANDS, overview
from app.cli.help import CommandParser, examples
from models.exit_codes import ExitCode
from models.version import VERSION

if TYPE_CHECKING:
    from app.cli.commands.command import Command
    from models.settings import Settings


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
    except EngineLost as error:
        print(f"darkroom: {error}", file=sys.stderr)
        return ExitCode.FAILED
    except BrokenPipeError:  # the reader of a pipe, as in `darkroom … | head`, has closed it
        standard_output.discard()
        return ExitCode.FAILED


def complete_parser() -> CommandParser:
    """Return the parser with the arguments of all commands, for completion."""
    parser, _ = _parser(list(COMMANDS), listed=True)
    return parser


def _run(arguments: Sequence[str]) -> int:
    parser, commands = _parser(arguments)
    try:
        if arguments and (own := commands.get(arguments[0])):
            own.check_flags(arguments[1:])
        options = vars(parser.parse_args(arguments))
    finally:
        standard_output.flush()  # the text that --help or --version printed
    name = options.pop("command")
    settings = _settings(options) if COMMANDS[name].has_settings else None
    code = _command(name).run(settings, **options)
    standard_output.flush()
    return code


def _settings(options: dict[str, object]) -> "Settings":
    """Take the settings out of the options; WrongUsage names the ones that are not valid."""
    from models.settings import Settings
    from models.settings_loading import load_settings
    from models.weights.sources import resolve_all

    found = {k: options.pop(k) for k in list(options) if k in Settings.model_fields}
    given = {k: v for k, v in found.items() if v is not None}
    try:
        settings = load_settings(**given)
        resolve_all(settings)
    except ValueError as error:
        raise WrongUsage(str(error).replace("\n", "\ndarkroom: ")) from None
    return settings


def _parser(
    arguments: Sequence[str], *, listed: bool = False
) -> tuple[CommandParser, dict[str, CommandParser]]:
    """Declare all commands by name, and the arguments of those that `arguments` name.

    Returns the whole parser, and the parsers of the commands. Commands that are `listed` have their
    summaries in argparse's own list too, which completion reads; help has a list by topic.
    """
    parser = CommandParser(
        prog="darkroom",
        usage="darkroom [-h] [--version] COMMAND …",
        description="Labels and filtered images, over HTTP or right here; one answer per image.\n"
        + overview(),
        epilog="`darkroom COMMAND --help` explains a command and shows examples.",
    )
    parser.add_argument("--version", action="version", version=VERSION, help="print the version")
    actions = parser.add_subparsers(
        required=True,
        metavar="COMMAND",
        dest="command",
        prog="darkroom",
        help="the command" if listed else argparse.SUPPRESS,
    )
    made: dict[str, CommandParser] = {}
    for name, entry in COMMANDS.items():
        text = f"{entry.summary[:1].upper()}{entry.summary[1:]}."
        if listed:
            own = actions.add_parser(name, description=text, help=entry.summary)
        else:
            own = actions.add_parser(name, description=text)
        made[name] = own
        if name in arguments:
            command = _command(name)
            command.declare(own)
            own.shorten_usage()
            parts = (examples(command.EXAMPLES), own.epilog)
            own.epilog = "\n\n".join(each for each in parts if each)
    return parser, made


def _command(name: str) -> "Command":
    return cast("Command", import_module(f"app.cli.commands.{name}"))
