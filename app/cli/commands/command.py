"""The interface of every command."""

import argparse
from collections.abc import Sequence
from typing import Any, Protocol


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
