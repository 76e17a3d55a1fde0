"""What a request wants of filters: chains of them, versions, and the format of what comes back."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from app.http.options import read_with_encoding
from app.intake.output_format import named_format, output_format
from app.intake.wanted import Output, Version
from app.parsing.structure import Bounds, cut
from models.api.schemas import EncodingOptions, FilterOptions
from models.codec import Encoding, ImageFormat
from models.domain.errors import FieldError, InvalidParameter, MalformedRequest, TooLarge
from models.domain.image import Subsampling
from workers.filters.registry import parse_chain, parse_one
from workers.operations import DeviceJpeg, FilterChain

MAX_VERSIONS = 64
"""Filtered versions of one image."""

MAX_ID = 256
"""Characters of a version's id."""

_OF_ANY_FORMAT = ("quality", "metadata")
"""Options of encoding that a version with a format of its own still takes from the request."""


def chain_of(options: FilterOptions) -> FilterChain:
    """The filters that `ops`, or `name` and what stands beside it, ask for."""
    parameters = options.model_extra or {}
    if (options.ops is None) == (options.name is None):
        wrong = FieldError("ops", "exactly one of `ops` and `name` is needed; GET /filters lists")
        raise InvalidParameter(wrong.message, [wrong])
    if options.name is not None:
        return FilterChain((parse_one(options.name, parameters),))
    if parameters:
        unknown = [
            FieldError(name, "unknown parameter", given) for name, given in parameters.items()
        ]
        raise InvalidParameter(f"unknown parameter {unknown[0].path!r} beside `ops`", unknown)
    return FilterChain(parse_chain(_decoded("ops", options.ops)))


def versions_of(
    wanted: str | list[Any], shared: EncodingOptions, header: str | None
) -> tuple[Version, ...]:
    """The versions of `POST /process`; `header` is Accept. Raises with the paths of all errors."""
    given = _decoded("versions", wanted)
    if not isinstance(given, list) or len(given) > MAX_VERSIONS:
        message = f'a list of at most {MAX_VERSIONS} is needed: [{{"ops": [{{"name": …}}]}}, …]'
        raise InvalidParameter(f"versions: {message}", [FieldError("versions", message)])
    versions: list[Version] = []
    errors: list[FieldError] = []
    for number, each in enumerate(given):
        try:
            versions.append(_version(each, shared, header))
        except InvalidParameter as error:
            errors.extend(
                FieldError(f"versions[{number}].{e.path}".rstrip("."), e.message, e.given)
                for e in error.errors
            )
    if errors:
        raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)
    return tuple(versions)


def encoding_of(own: EncodingOptions, shared: EncodingOptions | None = None) -> Encoding:
    """What is asked of the encoder; raises InvalidParameter if the format asked for has it not.

    Where no format is asked for, `Output.format_for` judges the one that is chosen.
    """
    names = [each.name for each in fields(Encoding)]
    given = {name: getattr(own, name) for name in names}
    if shared is not None:
        inherited = _OF_ANY_FORMAT if own.format else names
        for name in inherited:
            if given[name] is None:
                given[name] = getattr(shared, name)
    encoding = Encoding(**{name: value for name, value in given.items() if value is not None})
    asked = own.format or (shared.format if shared else None)
    if asked:
        encoding.check(named_format(asked))
    return encoding


def encoded_there(chain: FilterChain, encoding: Encoding, format_: str | None) -> FilterChain:
    """The chain with its results encoded by the GPU, if that is asked for; `format_` as given."""
    if encoding.encoder == "cpu":
        return chain
    if format_ is None:
        reason = "gpu makes JPEGs alone; give format=jpeg"
        wrong = FieldError("encoder", reason, encoding.encoder)
        raise InvalidParameter(f"encoder: {reason}", [wrong])
    chroma = Subsampling(":".join(encoding.subsampling))
    return replace(chain, jpeg=DeviceJpeg(encoding.quality_for(ImageFormat.JPEG), chroma))


def _version(given: object, shared: EncodingOptions, header: str | None) -> Version:
    """One version; the paths of its errors start at the version."""
    if not isinstance(given, Mapping):
        message = 'an object is needed: {"ops": [{"name": …}]}'
        raise InvalidParameter(message, [FieldError("", message, given)])
    id_ = given.get("id")
    if id_ is not None and not (isinstance(id_, str) and len(id_) <= MAX_ID):
        message = f"a text of at most {MAX_ID} characters is needed"
        raise InvalidParameter(message, [FieldError("id", message, id_)])
    asked = {name: value for name, value in given.items() if name != "id"}
    options, own = read_with_encoding(FilterOptions, asked)
    format_ = own.format or shared.format
    encoding = encoding_of(own, shared)
    chain = encoded_there(chain_of(options), encoding, format_)
    return Version(chain, Output(output_format(format_, header), encoding), id_)


def _decoded(name: str, given: object) -> object:
    """An option as JSON gives it: a list already, or text in a query or a form."""
    if not isinstance(given, str):
        return given
    try:
        return parsed_json(given)
    except ValueError as error:
        wrong = FieldError(name, str(error), given)
        raise InvalidParameter(f"{name}: not JSON", [wrong]) from None


def parsed_json(text: str) -> object:
    """What can be answered as JSON again.

    Raises ValueError also for half a surrogate pair, a deep nest, a key that stands twice in an
    object, and more structure than a chain or a list of versions can have.
    """
    try:
        cut(text.encode(), Bounds())
    except MalformedRequest:
        pass  # the parser says where
    except (InvalidParameter, TooLarge) as error:
        raise ValueError(error.detail) from None
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found
