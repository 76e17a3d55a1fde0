"""The chain of filters of a command: `--ops` with JSON or the short form, or `--op` repeatedly."""

import argparse
import re
from collections.abc import Sequence

from app.bulk.errors import WrongUsage
from app.cli.flags.offered_values import complete_with
from app.intake.json_items import parsed_json
from models.domain.errors import InvalidParameter
from workers.filters.registry import FILTERS, parse_chain
from workers.filters.short_form import parse_short
from workers.operations import FilterChain

OPS = 'all filters: sepia,grayscale, or JSON: [{"name": "gaussian_blur", "sigma": 2}]'
OP = "one filter, as gaussian_blur:sigma=2; repeat it for a chain"

_PATH = re.compile(r"^ops\[(\d+)\](?:\.(.*))?$")
"""The path of an error: the number of the filter, and the parameter."""


def declare(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Add `--ops` and `--op`, which exclude each other."""
    group = parser.add_mutually_exclusive_group(required=required)
    complete_with(group.add_argument("--ops", metavar="FILTERS", help=OPS), [*FILTERS])
    op = group.add_argument("--op", action="append", default=[], metavar="FILTER", help=OP)
    complete_with(op, [*FILTERS])


def given_chain(ops: str | None, op: Sequence[str]) -> FilterChain | None:
    """Return the chain that the flags describe, or None where none of them is given.

    WrongUsage names the flag, the filter, the parameter and what is allowed.
    """
    if op:
        return _chain("--op", [each for text in op for each in _short("--op", text)])
    return None if ops is None else _chain("--ops", _described(ops))


def _described(ops: str) -> object:
    if not ops.lstrip().startswith(("[", "{")):
        return _short("--ops", ops)
    try:
        return parsed_json(ops)
    except ValueError as error:
        raise WrongUsage(
            f"--ops: it begins as JSON, but is none: {error}; the short form is "
            "gaussian_blur:sigma=2,sepia"
        ) from None


def _short(flag: str, text: str) -> list[dict[str, object]]:
    try:
        return parse_short(text)
    except ValueError as error:
        raise WrongUsage(f"{flag}: {error}") from None


def _chain(flag: str, ops: object) -> FilterChain:
    try:
        return FilterChain(parse_chain(ops))
    except InvalidParameter as error:
        lines = [f"{flag}: {_place(each.path, ops)}{each.message}" for each in error.errors]
        raise WrongUsage("\ndarkroom: ".join(lines)) from None


def _place(path: str, ops: object) -> str:
    """Return the words before a message for the path `ops[0].sigma`: `gaussian_blur: sigma: `."""
    found = _PATH.match(path)
    if found is None or not isinstance(ops, list):
        return ""
    op, parameter = ops[int(found[1])], found[2]
    name = op.get("name") if isinstance(op, dict) else None
    if name not in FILTERS:
        return ""
    return f"{name}: {parameter}: "
