"""Parse the arguments of the command line, run a command, and return its exit code.

Only the module of the requested command is imported: the modules of all commands together take
seconds, and `--help` and `--version` need none of them.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from app.bulk.errors import CannotWrite, EngineLost, WrongUsage
from app.cli import standard_output
from models.did_you_mean import closest, hint
from models.exit_codes import ExitCode
from models.plugins import PluginRefused
from models.version import VERSION

if TYPE_CHECKING:
    from models.settings import Settings


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its summary, its arguments beside flags that may be left out, and its settings.

    A command that reads the settings takes 0.3 s of CPU time more.
    """

    summary: str
    usage: str = ""
    has_settings: bool = True


TOPICS: dict[str, dict[str, Entry]] = {
    "serve": {
        "serve": Entry("serve HTTP until stopped"),
        "health": Entry("tell whether a server is ready", "[URL]", has_settings=False),
    },
    "images without a server": {
        "classify": Entry("print the labels of images", "[FILE ...]"),
        "filter": Entry(
            "put images through filters", "(--ops FILTERS | --op FILTER) -o PATH [FILE ...]"
        ),
        "duplicates": Entry("find images that look alike", "[FILE ...]"),
        "filters": Entry("list the filters", "[name]", has_settings=False),
        "compare": Entry(
            "time filters on each device, and compare the bytes",
            "(--ops FILTERS | --op FILTER) IMAGE",
        ),
    },
    "prepare a machine": {
        "devices": Entry("show the GPUs and the CPU, and what `serve` would use"),
        "weights": Entry("download, verify or list weights", "{fetch,verify,list} [name]"),
        "kernels": Entry("compile the GPU's kernels in advance"),
        "completion": Entry("print the completion script of a shell", "SHELL", has_settings=False),
    },
}
"""The commands by topic. Each is a module of `app.cli.commands` with `EXAMPLES`, `declare(parser)`,
which adds arguments, and `run(settings, **options)`, which returns the exit code."""

COMMANDS = {name: entry for topic in TOPICS.values() for name, entry in topic.items()}


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its `ExitCode`."""
    try:
        return _run(arguments)
    except (WrongUsage, PluginRefused) as error:
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


def complete_parser() -> "CommandParser":
    """Return the parser with the arguments of all commands, for completion."""
    parser, _ = _parser(list(COMMANDS), listed=True)
    return parser


class CommandParser(argparse.ArgumentParser):
    """Parser whose errors are a line, with the name that was probably meant."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_FORMATTER, **options)

    def error(self, message: str) -> NoReturn:
        """Print the fault and where allowed values are listed; exit as for wrong usage."""
        line = f"darkroom: {message[:1].lower()}{message[1:]}\n"
        self.exit(ExitCode.WRONG_USAGE, f"{line}`{self.prog} --help` shows what is allowed\n")

    def refuse_unknown(self, arguments: Sequence[str]) -> None:
        """Exit for a long flag that this parser does not have, even where an argument is missing.

        Long flags may be shortened, and an argument with a space is no flag for argparse.
        """
        known = [each for each in self._option_string_actions if len(each) > 2]
        for argument in arguments:
            if argument == "--":
                return
            flag = argument.partition("=")[0]
            is_flag = flag.startswith("--") and " " not in argument
            if is_flag and not any(each.startswith(flag) for each in known):
                found = closest(flag, known)
                meant = f"; did you mean {found}?" if found else ""
                self.error(f"there is no flag {flag}{meant}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of the choices; argparse calls this."""
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        noun = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
        message = f"no {noun} {value!r}; {hint(str(value), known)}there are {', '.join(known)}"
        if noun == "command":
            self.error(message)
        raise argparse.ArgumentError(action, message)


_FORMATTER = partial(argparse.RawDescriptionHelpFormatter, max_help_position=32)


def _run(arguments: Sequence[str]) -> int:
    parser, commands = _parser(arguments)
    try:
        asked = next((each for each in arguments if not each.startswith("-")), "")
        if asked in commands:  # argparse names arguments that are missing before unknown flags
            commands[asked].refuse_unknown(arguments[arguments.index(asked) + 1 :])
        found, unknown = parser.parse_known_args(arguments)
        options = vars(found)
        name = options.pop("command")
        if unknown:  # argparse would show the help of all commands
            commands[name].error(f"unrecognized arguments: {' '.join(unknown)}")
    finally:
        standard_output.flush()  # the text that --help or --version printed
    settings = _settings(options) if COMMANDS[name].has_settings else None
    code: int = _command(name).run(settings, **options)
    standard_output.flush()
    return code


def _settings(options: dict[str, object]) -> "Settings":
    """Take the settings out of the options; WrongUsage names the invalid settings."""
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
    """Declare all commands by name, and the arguments of the commands in `arguments`.

    Returns the whole parser, and the parsers of the commands. Commands that are `listed` have their
    summaries in argparse's own list too, which completion reads; help has a list by topic.
    """
    overview = "".join(
        f"\n{topic}:\n" + "".join(f"  {name:12}{each.summary}\n" for name, each in entries.items())
        for topic, entries in TOPICS.items()
    )
    parser = CommandParser(
        prog="darkroom",
        usage="darkroom [-h] [--version] COMMAND …",
        description="Labels and filtered images, over HTTP or right here; one answer per image.\n"
        + overview.rstrip(),
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
        help_: dict[str, Any] = {"help": entry.summary} if listed else {}
        made[name] = own = actions.add_parser(
            name,
            usage=f"darkroom {name} [flags] {entry.usage}".rstrip(),
            description=f"{entry.summary[:1].upper()}{entry.summary[1:]}.",
            **help_,
        )
        if name in arguments:
            command = _command(name)
            command.declare(own)
            lines = ["examples:", *(f"  {line}" for line in command.EXAMPLES)]
            own.epilog = "\n".join(lines) + (f"\n\n{own.epilog}" if own.epilog else "")
    return parser, made


def _command(name: str) -> Any:
    return import_module(f"app.cli.commands.{name}")
