"""What all actors must have in common, so that records do not depend on the node that made them."""

import asyncio
from collections.abc import Mapping

from app.bulk.engines.cluster.layout import Place
from app.bulk.engines.cluster.messages import Started
from app.bulk.errors import WrongUsage
from models.settings import Precision, Settings


class Agreement:
    """The network and the libraries of the first actor; `first` ends when they are known."""

    def __init__(self, settings: Settings) -> None:
        self._measures = settings.precision == Precision.AUTO
        self._started: Started | None = None
        self._name = ""
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Return the properties of the network of all actors."""
        return None if self._started is None else self._started.identity

    @property
    def precision(self) -> Precision | None:
        """Return the precision that further actors must have, or None if it does not matter yet."""
        return None if self.identity is None else Precision(str(self.identity["precision"]))

    def accept(self, started: Started, place: Place) -> bool:
        """Compare an actor with the first one; WrongUsage tells what differs.

        Returns False if the actor measured that another precision is faster on its node: it must
        start again, with the precision of the first one.
        """
        if self._started is None:
            self._started, self._name = started, place.name
            self.first.set_result(None)
            return True
        for now, before in (
            (started.versions, self._started.versions),
            (started.identity or {}, self._started.identity or {}),
        ):
            changed = [name for name, value in now.items() if before.get(name) != value]
            if changed == ["precision"] and self._measures:
                return False
            if changed:
                told = ", ".join(f"{each} {now[each]} (not {before.get(each)})" for each in changed)
                raise WrongUsage(
                    f"--ray: node {place.name} has {told}, unlike node {self._name}, so records "
                    "would depend on the node; install the same on all nodes"
                )
        return True
