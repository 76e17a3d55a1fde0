"""Parse the short form of a chain of filters: `gaussian_blur:sigma=2,sepia`.

The grammar, where spaces around names and values do not count:

    chain     = filter ("," filter)*
    filter    = name [":" parameter ("," parameter)*]
    parameter = name "=" value

A piece with `=` before any `:` belongs to the filter before it, so commas separate both filters and
parameters. Commas within brackets or within double quotes belong to a value.

The declaration of a parameter determines the type of its value. A value that cannot be converted
stays text, and names are not checked: `parse_chain` refuses both and names the allowed values.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from models.api.numbers import is_plain
from workers.filters.registry import FILTERS, describe

LONGEST = 65536
"""The longest text that is parsed, in characters; 32 filters with all parameters are shorter."""


def parse_short(text: str) -> list[dict[str, Any]]:
    """Return `[{"name": …, parameter: value}, …]`, the form that `parse_chain` reads.

    Raises ValueError, which names the piece that does not follow the grammar.
    """
    if len(text) > LONGEST:
        raise ValueError(f"at most {LONGEST} characters are allowed, not {len(text)}")
    chain: list[dict[str, Any]] = []
    for piece in _pieces(text):
        head, colon, rest = (part.strip() for part in piece.partition(":"))
        if "=" in head:
            if not chain:
                raise ValueError(f"a filter is needed before the parameter {piece!r}")
            _add(chain[-1], piece)
            continue
        if not head:
            raise ValueError("the name of a filter is missing; an example is gaussian_blur:sigma=2")
        chain.append({"name": head})
        if colon:
            _add(chain[-1], rest)
    return chain


def _add(op: dict[str, Any], text: str) -> None:
    """Add `name=value` to the parameters of a filter."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or name == "name":
        raise ValueError(
            f"{op['name']}: {text!r} is no parameter; write parameter=value, several between commas"
        )
    if name in op:
        raise ValueError(f"{op['name']}: {name} is given twice")
    op[name] = _converted(value, _schema(str(op["name"]), name))


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts between commas that stand outside of brackets and double quotes."""
    depth, quoted, escaped, start = 0, False, False, 0
    for at, character in enumerate(text):
        if quoted:
            quoted = character != '"' or escaped
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[]":
            depth += 1 if character == "[" else -1
        elif character == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
    if quoted or depth:
        raise ValueError(f"a {'quote' if quoted else 'bracket'} is not closed in {text[start:]!r}")
    yield text[start:].strip()


def _schema(filter_: str, parameter: str) -> Mapping[str, Any]:
    """Return the JSON Schema of a parameter; it is empty for an unknown filter."""
    if filter_ not in FILTERS:
        return {}
    found: Mapping[str, Any] = describe(FILTERS[filter_])["parameters"].get(parameter, {})
    return found


def _converted(text: str, schema: Mapping[str, Any]) -> object:
    """Return the value that the schema allows, or the text where it is none."""
    kinds = [each.get("type") for each in schema.get("anyOf", [schema])]
    if text == "null" and "null" in kinds:
        return None
    if {"number", "integer"} & {*kinds} and is_plain(text):
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    if "boolean" in kinds and text in ("true", "false"):
        return text == "true"
    if ("array" in kinds and text.startswith("[")) or ("string" in kinds and text.startswith('"')):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text
