"""Error messages for wrong filters and parameters: they state what is allowed and what was
given.
"""

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from models.did_you_mean import hint

Schema = Mapping[str, Any]
"""The JSON Schema of one parameter."""

_SPOKEN = ("px", "%")
"""The units that messages print after a number; a level, a count or a ratio needs no unit."""


def wrong_name(given: object, known: Iterable[str]) -> str:
    """Return the message for an unknown filter: all known names, and the one closest to `given`."""
    names = list(known)
    if not isinstance(given, str):
        return f'a filter\'s "name" is needed, not {reprlib.repr(given)}: {", ".join(names)}'
    return f"no filter {reprlib.repr(given)}; {hint(given, names)}There are: {', '.join(names)}"


def wrong_parameter(
    filter_name: str, parameters: Mapping[str, Schema], name: str, given: object
) -> str:
    """Return the message for a wrong parameter.

    For a known parameter it states the allowed range and unit, for an unknown one the parameters of
    the filter.
    """
    if name not in parameters:
        there = f"takes {', '.join(parameters)}" if parameters else "takes no parameters"
        return f"unknown parameter; {hint(name, parameters)}{filter_name} {there}"
    return f"{allowed(parameters[name])} is needed, not {reprlib.repr(given)}"


def allowed(schema: Schema) -> str:
    """Describe the allowed values of a parameter by its schema.

    Examples: `a number from 0.1 to 100 px`, `an odd whole number from 3 to 101 px`, `one of x, y,
    mag`. A schema of another kind holds its own description in `takes`.
    """
    if "takes" in schema:
        return str(schema["takes"])
    kind = _variants(schema)[0]
    if "enum" in kind:
        return f"one of {', '.join(kind['enum'])}"
    if kind["type"] == "boolean":
        return "true or false"
    article = "an odd" if schema.get("not") == {"multipleOf": 2} else "a"
    noun = "whole number" if kind["type"] == "integer" else "number"
    unit = f" {schema['unit']}" if schema["unit"] in _SPOKEN else ""
    above = f", above {schema['above']}," if "above" in schema else ""
    return f"{article} {noun} from {kind['minimum']} to {kind['maximum']}{unit}{above}"


def is_number(schema: Schema) -> bool:
    """Return whether the parameter is a number. Numbers accept neither `true` nor, in JSON,
    text.
    """
    return _variants(schema)[0].get("type") in ("number", "integer")


def _variants(schema: Schema) -> list[Any]:
    return schema.get("anyOf") or [schema]
