"""Read the options of filters: chains, versions, and how their results are encoded."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from app.http.negotiation import Accept
from app.http.problems import MOST_ERRORS, read_with_encoding
from app.intake.json_items import parsed_json
from app.intake.output_format import FixedFormat, OutputFormat, named_format, output_format
from app.intake.wanted import Output, Version
from models.api.schemas import EncodingOptions, FilterOptions
from models.codec import Encoding, ImageFormat
from models.domain.errors import FieldError, InvalidParameter
from models.domain.image import Subsampling
from workers.filters.registry import parse_chain, parse_one
from workers.operations import DeviceJpeg, FilterChain

MAX_VERSIONS = 64
"""Largest number of filtered versions of one image."""

MAX_ID = 256
"""Largest number of characters of a version's id."""

_OF_ANY_FORMAT = ("quality", "metadata")
"""Options of encoding that a version with a format of its own still takes from the request."""


def chain_of(options: FilterOptions) -> FilterChain:
    """Return the chain that `ops`, or `name` with parameters, asks for; raises InvalidParameter."""
    parameters = options.model_extra or {}
    if (options.ops is None) == (options.name is None):
        wrong = FieldError(
            "ops", "exactly one of `ops` and `name` is needed; GET /filters lists all filters"
        )
        raise InvalidParameter(wrong.message, [wrong])
    if options.name is not None:
        return FilterChain((parse_one(options.name, parameters),))
    if parameters:
        unknown = [
            FieldError(name, "unknown parameter", given) for name, given in parameters.items()
        ]
        raise InvalidParameter(f"unknown parameter {unknown[0].path!r} beside `ops`", unknown)
    return FilterChain(parse_chain(_decoded("ops", options.ops)))


def listed_versions(given: str | list[Any]) -> list[Any]:
    """Return the versions of `POST /process` as they are given, without a look at any of them.

    Raises InvalidParameter.
    """
    found = _decoded("versions", given)
    if not isinstance(found, list) or len(found) > MAX_VERSIONS:
        message = f'a list of at most {MAX_VERSIONS} is needed: [{{"ops": [{{"name": …}}]}}, …]'
        raise InvalidParameter(f"versions: {message}", [FieldError("versions", message)])
    return found


def versions_of(given: list[Any], shared: EncodingOptions, accept: Accept) -> tuple[Version, ...]:
    """Return versions that were listed. To parse 64 chains of 32 filters takes 10 ms.

    Raises InvalidParameter with the first errors of the versions, and their paths.
    """
    unnamed = output_format(None, accept)
    versions: list[Version] = []
    errors: list[FieldError] = []
    for number, each in enumerate(given):
        try:
            versions.append(_version(each, shared, unnamed))
        except InvalidParameter as error:
            errors.extend(
                FieldError(f"versions[{number}].{e.path}".rstrip("."), e.message, e.given)
                for e in error.errors
            )
            if len(errors) >= MOST_ERRORS:  # an answer has no more, and each takes 100 µs
                break
    if errors:
        raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)
    return tuple(versions)


def encoding_of(own: EncodingOptions, shared: EncodingOptions | None = None) -> Encoding:
    """Return the options of the encoder; a version inherits those of the request (`shared`).

    Raises InvalidParameter if `format` is given and does not have one of the options. Without
    `format`, `Output.format_for` checks the format that is chosen for each image.
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
    """Return the chain, with its results encoded by the GPU if `encoder` asks for that.

    `format_` is the option `format`, or None. Raises InvalidParameter where a GPU cannot do it.
    """
    if encoding.encoder == "cpu":
        return chain
    if format_ is None:
        reason = "gpu makes JPEGs alone; give format=jpeg"
        wrong = FieldError("encoder", reason, encoding.encoder)
        raise InvalidParameter(f"encoder: {reason}", [wrong])
    chroma = Subsampling(":".join(encoding.subsampling))
    return replace(chain, jpeg=DeviceJpeg(encoding.quality_for(ImageFormat.JPEG), chroma))


def _version(given: object, shared: EncodingOptions, unnamed: OutputFormat) -> Version:
    """Return one version, in the format `unnamed` if neither it nor the request names one.

    Raises InvalidParameter, whose paths start at the version.
    """
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
    chosen = unnamed if format_ is None else FixedFormat(named_format(format_))
    return Version(chain, Output(chosen, encoding), id_)


def _decoded(name: str, given: object) -> object:
    """Return an option that is JSON: already parsed in a JSON body, text in a query or a form."""
    if not isinstance(given, str):
        return given
    try:
        return parsed_json(given)
    except ValueError as error:
        wrong = FieldError(name, str(error), given)
        raise InvalidParameter(f"{name}: the text is not valid JSON: {error}", [wrong]) from None
