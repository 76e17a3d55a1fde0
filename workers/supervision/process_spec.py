"""What a supervisor needs to know of a process in order to start it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.supervision.forking import ForkSpec


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: `python -m module name`, its orders, and what it inherits.

    Members of one `pool` differ only in their orders named in `last_orders`. A spare process of the
    pool, started as `spare_module`, waits for these and is then like any other member.
    """

    name: str
    module: str
    orders: Mapping[str, Any]
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    patience: float = 10.0
    """Seconds in which it must end after SIGTERM."""
    pool: str | None = None
    spare_module: str = ""
    last_orders: Sequence[str] = ()
    forks: ForkSpec | None = None
    """The server that forks processes of this pool, whose start is then shorter."""
    beats: bool = False
    """Whether it gives signs of life, and is killed when they do not come."""
    measured: dict[str, Any] = field(default_factory=dict)
    """What processes of this member or its spares have measured."""
