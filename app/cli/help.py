"""The parser of every command: help with sections and examples, errors with suggestions."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from app.system.terminal import Style, has_colours, styled
from models.did_you_mean import closest, hint
from models.exit_codes import ExitCode


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formatter that keeps the lines of descriptions, and sets titles in bold on a terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def start_section(self, heading: str | None) -> None:
        """Begin a section of options; argparse calls this."""
        colours = has_colours(sys.stdout)
        super().start_section(heading and styled(heading, Style.BOLD, on=colours))


class CommandParser(argparse.ArgumentParser):
    """Parser whose errors are one line, with the name that was probably meant."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Print what was wrong and where to read what is allowed; exit as for wrong usage."""
        line = f"darkroom: {message[:1].lower()}{message[1:]}\n"
        self.exit(ExitCode.WRONG_USAGE, f"{line}`{self.prog} --help` shows what is allowed\n")

    def check_flags(self, arguments: Sequence[str]) -> None:
        """Refuse long flags that this parser does not have, before anything that is missing.

        argparse would first complain about missing arguments, among them the one that the flag was
        meant to give.
        """
        known = [each for each in self._option_string_actions if each.startswith("--")]
        for argument in arguments:
            if argument == "--":
                return
            flag = argument.partition("=")[0]
            is_flag = flag.startswith("--") and " " not in flag
            if is_flag and not any(each.startswith(flag) for each in known):
                found = closest(flag, known)
                meant = f"; did you mean {found}?" if found else ""
                self.error(f"there is no flag {flag}{meant}")

    def shorten_usage(self) -> None:
        """Set a usage of one line, with the flags that are required alone."""
        words = [self.prog, "[flags]"]
        words += [
            "(" + " | ".join(_flag(each) for each in group._group_actions) + ")"
            for group in self._mutually_exclusive_groups
            if group.required
        ]
        words += [_flag(each) for each in self._actions if each.option_strings and each.required]
        formatter = self._get_formatter()
        for action in self._actions:
            if not action.option_strings:
                metavar = formatter._get_default_metavar_for_positional(action)
                words.append(formatter._format_args(action, metavar))
        self.usage = " ".join(words).replace("%", "%%")

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


def _flag(action: argparse.Action) -> str:
    """Return a flag and the name of its value."""
    return f"{action.option_strings[0]} {action.metavar or action.dest.upper()}"


def title(text: str) -> str:
    """Return the title of a part of the help."""
    return styled(text, Style.BOLD, on=has_colours(sys.stdout))


def examples(lines: Sequence[str]) -> str:
    """Return the part of the help that shows how a command is used."""
    return "\n".join([title("examples:"), *(f"  {line}" for line in lines)])
