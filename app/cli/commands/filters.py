"""`darkroom filters`: list the filters, or show a filter's declaration."""

import argparse
import json

from app.bulk.errors import WrongUsage
from app.cli.flags import complete_with
from app.cli.standard_output import show
from models.did_you_mean import hint
from models.exit_codes import ExitCode
from workers.filters.registry import FILTERS, describe

EXAMPLES = (
    "darkroom filters",
    "darkroom filters gaussian_blur",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    name = parser.add_argument(
        "name", nargs="?", help="show everything about this filter (default: list all)"
    )
    complete_with(name, [*FILTERS])


def run(_settings: None, name: str | None) -> int:
    """Print all filters, or the declaration of the filter `name`."""
    if name is None:
        described = (describe(each) for each in FILTERS.values())
        show("".join(f"{each['name']:16} {each['description']}\n" for each in described))
        return ExitCode.OK
    if name not in FILTERS:
        raise WrongUsage(f"no filter {name!r}; {hint(name, FILTERS)}there are {', '.join(FILTERS)}")
    show(json.dumps(describe(FILTERS[name]), indent=2) + "\n")
    return ExitCode.OK
