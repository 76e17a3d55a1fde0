"""Validate the options of a request by the models that declare them; report all errors at once."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from app.http.problems import invalid
from models.api.schemas import EncodingOptions

ModelT = TypeVar("ModelT", bound=BaseModel)


def read(kind: type[ModelT], given: Mapping[str, Any]) -> ModelT:
    """Return all of `given` as one model; raises InvalidParameter."""
    found, wrong = _tried(kind, given)
    if found is None:
        raise invalid(_explained(wrong, kind))
    return found


def read_with_encoding(
    kind: type[ModelT], given: Mapping[str, Any]
) -> tuple[ModelT, EncodingOptions]:
    """Return the options of the encoder, and all others as `kind`; raises InvalidParameter."""
    names = EncodingOptions.model_fields.keys()
    found, wrong = _tried(kind, {k: v for k, v in given.items() if k not in names})
    encoding, more = _tried(EncodingOptions, {k: v for k, v in given.items() if k in names})
    if found is None or encoding is None:
        raise invalid(_explained([*wrong, *more], kind, EncodingOptions))
    return found, encoding


def _tried(
    kind: type[ModelT], given: Mapping[str, Any]
) -> tuple[ModelT | None, list[ErrorDetails]]:
    try:
        return kind.model_validate(given), []
    except ValidationError as error:
        return None, error.errors(include_url=False, include_context=False)


def _explained(details: list[ErrorDetails], *kinds: type[BaseModel]) -> list[ErrorDetails]:
    """Add the names of all options to the error of an unknown one."""
    known = ", ".join(name for kind in kinds for name in kind.model_fields)
    for each in details:
        if each["type"] == "extra_forbidden":
            each["msg"] = f"unknown option; there are {known}"
    return details
