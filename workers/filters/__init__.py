"""The registry: an explicit union of all filters, and how a request's filters are read."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from models.errors import FieldError, InvalidParameter
from workers.filters.base import SPEC_VERSION, Filter
from workers.filters.box_blur import BoxBlur
from workers.filters.brightness import Brightness
from workers.filters.contrast import Contrast
from workers.filters.gaussian_blur import GaussianBlur
from workers.filters.grayscale import Grayscale
from workers.filters.invert import Invert
from workers.filters.median import Median
from workers.filters.saturation import Saturation
from workers.filters.sobel import Sobel
from workers.filters.unsharp_mask import UnsharpMask

__all__ = ["FILTERS", "SPEC_VERSION", "AnyFilter", "describe", "parse_chain", "parse_one"]

AnyFilter = Annotated[
    Grayscale
    | Invert
    | Brightness
    | Contrast
    | Saturation
    | GaussianBlur
    | BoxBlur
    | Median
    | UnsharpMask
    | Sobel,
    Field(discriminator="name"),
]

FILTERS: dict[str, type[Filter]] = {
    each.model_fields["name"].default: each
    for each in (
        Grayscale,
        Invert,
        Brightness,
        Contrast,
        Saturation,
        GaussianBlur,
        BoxBlur,
        Median,
        UnsharpMask,
        Sobel,
    )
}

MAX_CHAIN = 32
"""Filters in one chain."""

_ADAPTER: TypeAdapter[AnyFilter] = TypeAdapter(AnyFilter)


def parse_chain(ops: object) -> tuple[AnyFilter, ...]:
    """`[{"name": …, parameter: …}, …]` as filters; raises InvalidParameter with every path."""
    if not isinstance(ops, Sequence) or isinstance(ops, str) or not 1 <= len(ops) <= MAX_CHAIN:
        message = f'a list of 1 to {MAX_CHAIN} filters is needed: [{{"name": "invert"}}, …]'
        raise InvalidParameter(f"ops: {message}", [FieldError("ops", message, ops)])
    chain: list[AnyFilter] = []
    errors: list[FieldError] = []
    for index, op in enumerate(ops):
        try:
            chain.append(_parse(op, f"ops[{index}]", strict=True))
        except InvalidParameter as error:
            errors.extend(error.errors)
    if errors:
        raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)
    return tuple(chain)


def parse_one(name: str, parameters: Mapping[str, Any]) -> AnyFilter:
    """One filter by name; numbers may be text, as queries and forms have them."""
    return _parse({**parameters, "name": name}, "", strict=False)


def describe(filter_: type[Filter]) -> dict[str, Any]:
    """A filter for people and programs: schema, units, defaults, ranges, rules, an example."""
    schema = filter_.model_json_schema()
    schema["properties"].pop("name")
    return {
        "name": filter_.model_fields["name"].default,
        "description": (filter_.__doc__ or "").strip(),
        "parameters": schema["properties"],
        "alpha": filter_.alpha_rule,
        "border": filter_.border,
        "tolerance": filter_.tolerance,
        "example": filter_.example,
        "spec_version": SPEC_VERSION,
    }


def _parse(op: object, path: str, *, strict: bool) -> AnyFilter:
    prefix = f"{path}." if path else ""
    if not isinstance(op, Mapping):
        _refuse(path, 'an object with a "name" is needed', op)
    elif op.get("name") not in FILTERS:
        _refuse(f"{prefix}name", _unknown(op.get("name")), op.get("name"))
    elif wrong := [k for k, v in op.items() if strict and k != "name" and _not_json_number(v)]:
        _refuse(prefix + wrong[0], "a number is needed", op[wrong[0]])
    try:
        return _ADAPTER.validate_python(op)
    except ValidationError as error:
        errors = [
            FieldError(prefix + str(e["loc"][-1]), e["msg"], e.get("input"))
            for e in error.errors(include_url=False)
        ]
        raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors) from None


def _refuse(path: str, message: str, given: object) -> None:
    raise InvalidParameter(f"{path}: {message}", [FieldError(path, message, given)])


def _unknown(name: object) -> str:
    close = difflib.get_close_matches(str(name), FILTERS, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"no filter {name!r}{hint} There are: {', '.join(FILTERS)}"


def _not_json_number(value: object) -> bool:
    """In JSON true is no number; text is one only where a filter wants a word (`axis`)."""
    return isinstance(value, bool)
