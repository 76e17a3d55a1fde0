"""A request for a job, as far as it is known before its body."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for: an operation with its options, and a key for repeated requests."""

    client: str
    operation: str
    options: dict[str, Any]
    key: str | None = None
