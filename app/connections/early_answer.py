"""Define answers that depend on the headers alone, so that no task is needed for the request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    """A whole answer: its status, its header lines, each with its line end, and its body."""

    status: int
    headers: bytes
    body: bytes

    def message(self, more: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the bytes of the answer; `more` headers come first."""
        lines = b"".join([b"%b: %b\r\n" % each for each in more])
        return b"%b%b%b\r\n%b" % (STATUS_LINE[self.status], lines, self.headers, self.body)


Decide = Callable[[Scope], EarlyAnswer | None]
"""The answer to a request whose headers have come, or None: the application answers it."""


def never(_scope: Scope) -> EarlyAnswer | None:
    """Return None: the application answers every request."""
    return None
