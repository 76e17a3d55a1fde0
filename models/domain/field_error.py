"""One wrong field of a request, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: its JSON path, what is wrong and what was given."""

    path: str
    message: str
    given: object = None
