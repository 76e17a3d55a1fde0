"""The words of an attack: where it goes, what came of it, and what is promised about it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DEADLINE = 30.0
"""Seconds a request may take by default, which an attacker's may not exceed either."""

SLACK = 3.0
"""Seconds beyond a deadline that a busy machine is given."""

NEIGHBOURS = 15
"""Good clients beside an attack."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server under attack; `pid` is its first process, `source` the attacker's own address."""

    port: int
    pid: int
    source: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request of the attacker came to.

    `end` is "answered", "closed" (no answer, but a proper end), "reset" (an answer could not be
    read), "refused" (no connection) or "never" (nothing within the attacker's patience).
    """

    end: str
    status: int | None
    seconds: float
    body_bytes: int = 0
    excerpt: str = ""
    head: bytes = b""


@dataclass(frozen=True, slots=True)
class Finding:
    """A number that the attack itself measured; broken where it lies outside its bounds."""

    name: str
    value: float
    most: float | None = None
    least: float | None = None

    @property
    def broken(self) -> bool:
        """Return whether the promise is broken."""
        too_large = self.most is not None and self.value > self.most
        return too_large or (self.least is not None and self.value < self.least)


Step = Outcome | Finding | None
Steps = Iterator[Step]
"""An attack's generator: it builds its inputs, yields None once, attacks, yields what it saw."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack, the number of the promise that it tests, and what holds for its own requests.

    `ends_within` is the seconds after which each of them must have ended; `patience`, the seconds
    the whole attack may take. `front_ends`: it needs several processes.
    """

    run: Callable[[Target], Steps]
    promise: int
    ends_within: float = DEADLINE + SLACK
    patience: float = 90.0
    descriptors: int | None = None
    front_ends: bool = False
    resets_allowed: bool = False

    @property
    def name(self) -> str:
        """Return the name, as on the command line and in the results."""
        return self.run.__name__

    @property
    def about(self) -> str:
        """Return the first line of the function's docstring."""
        text = (self.run.__doc__ or "").strip().splitlines()[0]
        return re.sub(r"\s+", " ", text)
