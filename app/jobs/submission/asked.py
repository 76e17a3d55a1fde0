"""A request for a job, as far as it is known before its body."""

import json
from dataclasses import dataclass
from typing import Any

from app.storage.location import Location


@dataclass(frozen=True, slots=True)
class Source:
    """Where the items of a job come from: files below `prefix`, or what failed in job `retry_of`.

    Exactly one is given; `include` are patterns of names below the prefix.
    """

    prefix: Location | None = None
    include: tuple[str, ...] = ()
    retry_of: str | None = None

    def __str__(self) -> str:
        """Return what makes two sources equal."""
        return json.dumps([str(self.prefix), self.include, self.retry_of])


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for: an operation with its options, and a key for repeated requests.

    Without a `source` the images are those of the body. `destination` is a storage address.
    """

    client: str
    operation: str
    options: dict[str, Any]
    key: str | None = None
    source: Source | None = None
    destination: str | None = None
    webhook: str | None = None
    concurrency: int | None = None
