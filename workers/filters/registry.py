"""The registry of all filters: a list of their classes, other packages', and the parser."""

import copy
import functools
import itertools
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from models.api.numbers import is_plain
from models.did_you_mean import hint
from models.domain.errors import FieldError, InvalidParameter
from models.plugins import PluginRefused, plugins
from workers.filters.base import SPEC_VERSION, ArrayFilter, Filter
from workers.filters.blur import BoxBlur, GaussianBlur, MotionBlur
from workers.filters.colour import Colorize, ColorMatrix, Grayscale, Hue, Saturation, Sepia
from workers.filters.edges import Canny, Dog, Laplacian, Prewitt, Scharr, Sobel
from workers.filters.effects import Noise, Pixelate, Vignette
from workers.filters.fourier import FftFilter
from workers.filters.geometry import (
    Composite,
    Crop,
    Flip,
    Pad,
    Resize,
    Rotate,
    Rotate90,
    RoundCorners,
    Trim,
)
from workers.filters.histogram import Autocontrast, Clahe, Equalize
from workers.filters.marks import Overlay, Redact
from workers.filters.morphological import Morphology
from workers.filters.rank import Median, Rank
from workers.filters.sharpen import Convolve, Preset, Sharpen, UnsharpMask
from workers.filters.smoothing import Bilateral, Guided, NlMeans
from workers.filters.threshold import AdaptiveThreshold, Otsu, Threshold
from workers.filters.tone import Brightness, Contrast, Gamma, Invert, Levels, Posterize, Solarize
from workers.kernels.items import grid_of
from workers.kernels.loader import modules

# Error messages for wrong filters and parameters: they state what is allowed and what was given.

Schema = Mapping[str, Any]
"""The JSON Schema of one parameter."""

_SPOKEN = ("px", "%")
"""The units that messages print after a number; a level, a count or a ratio needs no unit."""


def wrong_name(given: object, known: Iterable[str]) -> str:
    """Return the message for an unknown filter: all known names, and the closest name."""
    names = list(known)
    if not isinstance(given, str):
        return f'a filter\'s "name" is needed, not {reprlib.repr(given)}: {", ".join(names)}'
    return f"no filter {reprlib.repr(given)}; {hint(given, names)}There are: {', '.join(names)}"


def wrong_parameter(
    filter_name: str, parameters: Mapping[str, Schema], name: str, given: object
) -> str:
    """Return the message for a wrong parameter.

    For a known parameter it states the allowed range and unit, for an unknown parameter the
    parameters of the filter.
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


def _variants(schema: Schema) -> list[Any]:
    return schema.get("anyOf") or [schema]


_CLASSES: tuple[type[Filter], ...] = (
    Grayscale, Invert, Brightness, Contrast, Saturation, Hue, Gamma, Levels, Posterize, Solarize,
    Threshold, Otsu, Sepia, ColorMatrix, Colorize, Autocontrast, Equalize, Clahe,
    GaussianBlur, BoxBlur, MotionBlur, Median, Rank, Bilateral, Guided, NlMeans,
    UnsharpMask, Sharpen, Preset, Convolve, Sobel, Scharr, Prewitt, Laplacian, Dog, Canny,
    Morphology, AdaptiveThreshold, Pixelate, Vignette, Noise, FftFilter,
    Flip, Rotate90, Rotate, Resize, Crop, Trim, Pad, RoundCorners, Composite,
    Redact, Overlay,
)  # fmt: skip
"""All filters of Darkroom itself, in the order of the catalogue."""

FILTERS = {each.name: each for each in _CLASSES}
"""All filters by name; those of other packages follow at the end of this module."""

MAX_CHAIN = 32
"""The largest number of filters in one chain."""

MOST_WRONG = 20
"""The largest number of wrong parameters that one error reports for a filter, and the number of
errors after which the other filters of a chain are not checked: each takes 60 to 120 µs."""


def parse_chain(ops: object) -> tuple[Filter, ...]:
    """Parse `[{"name": …, parameter: …}, …]` into filters.

    Raises InvalidParameter, which lists the paths and the messages of the first wrong values.
    """
    if not isinstance(ops, list | tuple) or not 1 <= len(ops) <= MAX_CHAIN:
        message = f'a list of 1 to {MAX_CHAIN} filters is needed: [{{"name": "invert"}}, …]'
        raise InvalidParameter.of("ops", message, ops)
    chain: list[Filter] = []
    errors: list[FieldError] = []
    for index, op in enumerate(ops):
        try:
            chain.append(_parse(op, f"ops[{index}]", text=False))
        except InvalidParameter as error:
            errors.extend(error.errors)
            if len(errors) >= MOST_WRONG:
                break
    if errors:
        raise _invalid(errors)
    return tuple(chain)


def parse_one(name: str, parameters: Mapping[str, Any]) -> Filter:
    """Parse a filter by its name.

    Numbers may be text, because queries and forms have no further type. Raises InvalidParameter.
    """
    return _parse({**parameters, "name": name}, "", text=True)


def describe(filter_: type[Filter]) -> dict[str, Any]:
    """Describe a filter: schema with units, defaults and ranges, rules, and an example."""
    return {
        "name": filter_.name,
        "description": (filter_.__doc__ or "").strip(),
        "parameters": copy.deepcopy(_parameters(filter_)),
        "alpha": filter_.alpha_rule,
        "border": filter_.border,
        "result_shape": filter_.result_shape,
        "tolerance": filter_.tolerance,
        "example": filter_.example,
        "spec_version": SPEC_VERSION,
    }


@functools.cache
def _parameters(filter_: type[Filter]) -> dict[str, Any]:
    found: dict[str, Any] = filter_.model_json_schema()["properties"]
    return found


def _parse(op: object, path: str, *, text: bool) -> Filter:
    """Parse a filter; `text` states whether numbers may be written as text."""
    prefix = f"{path}." if path else ""
    if not isinstance(op, Mapping):
        raise _invalid([FieldError(path, 'an object with a "name" is needed', op)])
    name = op.get("name")
    if not isinstance(name, str) or name not in FILTERS:
        raise _invalid([FieldError(f"{prefix}name", wrong_name(name, FILTERS), name)])
    parameters = _parameters(FILTERS[name])
    wrong: dict[str, object] = {
        key: op[key]
        for key, schema in parameters.items()
        if key in op and _is_no_number(op[key], schema, text=text)
    }
    # The first unknown ones suffice: pydantic describes all of them, which takes 6 µs each.
    known = {key: given for key, given in op.items() if key in parameters}
    unknown = itertools.islice((key for key in op if key not in {*known, "name"}), MOST_WRONG)
    try:
        parsed = FILTERS[name].model_validate(known | {key: op[key] for key in unknown})
    except ValidationError as error:
        found = itertools.islice(error.errors(include_url=False), MOST_WRONG)
        wrong |= {key: op.get(key) for key in (str(e["loc"][0]) for e in found)}
    if wrong:
        raise _invalid(
            [
                FieldError(prefix + key, wrong_parameter(name, parameters, key, given), given)
                for key, given in wrong.items()
            ]
        )
    return parsed


def _is_no_number(value: object, schema: Schema, *, text: bool) -> bool:
    """Return whether a parameter is a number and its value is `true` or text that is none."""
    if _variants(schema)[0].get("type") not in ("number", "integer"):
        return False
    if isinstance(value, str):
        return not (text and is_plain(value))
    return isinstance(value, bool | bytes)


def _invalid(errors: Sequence[FieldError]) -> InvalidParameter:
    return InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)


# The expected time of a filter on a core. The figures were measured with a picture of 640 × 480 in
# RGB (x86_64), and rounded. The relation between filters matters, because admission measures how
# fast expected work is done. A filter that is not listed takes `USUAL`.

USUAL = 5.0
"""Nanoseconds a pixel of most filters."""

_SLOW: dict[str, Callable[[Any], float]] = {
    "bilateral": lambda f: 2 + 0.7 * f.diameter**2,
    "nl_means": lambda f: 2 * f.search**2,
    "rank": lambda f: min(750.0, 2.0 * f.size**2),
    "median": lambda f: 2.0 if f.size <= 5 else 60.0,
    "guided": lambda _: 40.0,
    "motion_blur": lambda f: 0.7 * f.length,
    "gaussian_blur": lambda f: 10 + 3.5 * f.sigma,
    "unsharp_mask": lambda f: 12 + 3.5 * f.sigma,
    "dog": lambda f: 6 + 0.9 * (f.sigma1 + f.sigma2),
    "noise": lambda _: 9.0,
    "fft_filter": lambda _: 150.0,
    "round_corners": lambda f: min(90.0, 10 + 0.15 * f.radius),
    "redact": lambda f: USUAL * max(1, sum(min(1, w * h) for _, _, w, h in f.regions)),
    "rotate": lambda f: 160.0 if f.method == "bicubic" else 60.0,
}


def nanoseconds(filters: Sequence[Any]) -> float:
    """Return the expected nanoseconds a pixel of filters that are applied in turn."""
    return sum([_SLOW[each.name](each) if each.name in _SLOW else USUAL for each in filters])


def _add_plugins() -> None:
    """Add the filters of installed packages.

    Raises PluginRefused for a class that is no filter, that has the name of another filter or an
    option for a parameter, that cannot be described, or that lacks a kernel: its result on a GPU
    would be old memory.
    """
    from models.api.schemas import FilterOptions  # workers need it only here

    options = {*FilterOptions.model_fields, "timeout"}
    owners = dict.fromkeys(FILTERS, "Darkroom")
    for package, _, filter_ in plugins():
        modules()  # refuses packages for their CUDA text
        if not (isinstance(filter_, type) and issubclass(filter_, Filter)):
            raise PluginRefused(package, f"{filter_!r} is no subclass of darkroom.filters.Filter")
        name = filter_.name
        if name in FILTERS:
            raise PluginRefused(package, f"{owners[name]} has a filter {name} too")
        FILTERS[name], owners[name] = filter_, package
        try:
            if taken := sorted(options & filter_.model_fields.keys()):
                raise TypeError(f"requests have options named {', '.join(taken)}")
            for schema in describe(filter_)["parameters"].values():
                allowed(schema)
            parse_chain([filter_.example])
            for each in filter_.passes:
                grid_of(each.kernel)
            if not (filter_.passes or issubclass(filter_, ArrayFilter)):
                raise TypeError("it has no passes, and is no ArrayFilter")
        except Exception as error:  # methods of other packages may raise anything
            raise PluginRefused(package, f"{name} is not complete: {error!r}") from error


_add_plugins()
