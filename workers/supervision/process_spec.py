"""What a supervisor needs to know of a process in order to start it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: `python -m module name`, its orders, and what it inherits.

    A process that is started to replace a running one waits for the orders named in `last_orders`
    until that one leaves.
    """

    name: str
    module: str
    orders: Mapping[str, Any]
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] | None = None
    patience: float = 10.0
    """Seconds in which it must end after SIGTERM."""
    replaced_at_once: bool = False
    """Whether its successor starts before the memory of a killed process is released."""
    last_orders: Sequence[str] = ()
    beats: bool = False
    """Whether it gives signs of life, and is killed when they do not come."""
    measured: dict[str, Any] = field(default_factory=dict)
    """What processes of this member have measured."""
