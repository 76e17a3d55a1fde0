"""`darkroom filters`: list the filters, or show one filter's declaration."""

import argparse
import json

from app.cli.commands.errors import WrongUsage
from app.cli.commands.standard_output import show
from models.exit_codes import ExitCode
from models.settings import Settings
from workers.filters.registry import FILTERS, describe


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("name", nargs="?", help="show everything about this filter")


def run(_settings: Settings, name: str | None) -> int:
    """Print all filters, or the declaration of the one called `name`."""
    if name is None:
        described = (describe(each) for each in FILTERS.values())
        show("".join(f"{each['name']:16} {each['description']}\n" for each in described))
        return ExitCode.OK
    if name not in FILTERS:
        raise WrongUsage(f"no filter {name!r}; there are {', '.join(FILTERS)}")
    show(json.dumps(describe(FILTERS[name]), indent=2) + "\n")
    return ExitCode.OK
