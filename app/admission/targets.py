"""The kinds of work that requests for a target ask for, so that a request's headers tell its cost.

A target is a path with its query. The options of a request whose body is an image stand in its
query, so equal targets mean equal kinds of work; those of forms and JSON may stand in the body.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

MOST_TARGETS = 512
"""Targets are named by clients, so the number that is remembered is bounded."""

LONGEST = 512
"""Bytes of a path and a query that are remembered."""

Target = tuple[str, bytes]
"""A path and a query."""


class TargetKinds:
    """Remembers the kinds of work by target; the target that was asked for longest ago goes."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Target, Sequence[Hashable]] = OrderedDict()

    def note(self, target: Target, kinds: Sequence[Hashable]) -> None:
        """Remember that a request for `target` asked for work of these kinds."""
        if not kinds or len(target[0]) + len(target[1]) > LONGEST:
            return
        self._kinds[target] = kinds
        self._kinds.move_to_end(target)
        if len(self._kinds) > MOST_TARGETS:
            self._kinds.popitem(last=False)

    def of(self, target: Target) -> Sequence[Hashable]:
        """Return the kinds of the last request for `target`; none where it is unknown."""
        return self._kinds.get(target, ())
