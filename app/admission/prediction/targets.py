"""The kinds of work that requests for a target ask for, so that a request's headers tell its cost.

A target is a path with its query. The options of a request whose body is an image stand in its
query, so equal targets mean equal kinds of work; those of forms and JSON may stand in the body, and
those of the Open Inference Protocol always do.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

MOST_TARGETS = 512
"""Targets are named by clients, so the number that is remembered is bounded."""

LONGEST = 512
"""Bytes of a path and a query that are remembered."""

IN_BODY = ("multipart/form-data", "application/json", "application/x-www-form-urlencoded")
"""Media types of bodies that may say what is wanted; for all others the path and query say it."""

INFERENCE = "/v2/"
"""Begins the paths of the Open Inference Protocol, whose inputs and outputs stand in the body."""

Target = tuple[str, bytes]
"""A path and a query."""


def target_of(path: str, query: bytes, media_type: str) -> Target | None:
    """Return a request's target; None where its body may say what is wanted.

    `media_type` is that of the body, in lower case and without parameters.
    """
    in_body = media_type in IN_BODY or path[: len(INFERENCE)] == INFERENCE
    return None if in_body else (path, query)


class TargetKinds:
    """Remembers the kinds of work by target; the target that was asked for longest ago goes."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Target, Sequence[Hashable]] = OrderedDict()

    def note(self, target: Target | None, kinds: Sequence[Hashable]) -> None:
        """Remember that a request for `target` asked for work of these kinds."""
        if target is None or not kinds or len(target[0]) + len(target[1]) > LONGEST:
            return
        self._kinds[target] = kinds
        self._kinds.move_to_end(target)
        if len(self._kinds) > MOST_TARGETS:
            self._kinds.popitem(last=False)

    def of(self, target: Target | None) -> Sequence[Hashable]:
        """Return the kinds of the last request for `target`; none where it is unknown."""
        return () if target is None else self._kinds.get(target, ())
