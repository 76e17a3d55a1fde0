"""Require a minimum rate from a client that sends a body, while the application waits for it."""

from collections.abc import Mapping
from typing import Any

from app.http.request import STREAM, StreamWindow
from models.domain.errors import SlowBody

WINDOW = 10.0
"""Seconds of waiting over which the rate is measured; the first check comes at their end."""


class BodyRate:
    """Measures the body of one request; `scope` is that of the request.

    Only time in which the application waits for the client counts: a slow application does not make
    the client fail. A stream (see STREAM) may pause while it waits for answers, and needs the rate
    only inside an image.
    """

    __slots__ = ("_bytes", "_counted", "_scope", "_since", "_waited")

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self._since: float | None = None
        """When the application began to wait for the next piece."""
        self._counted = self._waited = 0.0
        """Until when the present wait is counted, and the seconds that were waited before."""
        self._bytes = 0

    def wait(self, now: float) -> None:
        """Note that the application waits for a piece."""
        self._since = self._counted = now

    def piece(self, size: int, now: float) -> None:
        """Note that the application has a piece of `size` bytes, for which it may have waited."""
        if self._since is not None:
            self._waited += now - self._counted
            self._since = None
        self._bytes += size

    def late(self, now: float, seconds: float, rate: int) -> SlowBody | None:
        """Return the error of a body that comes too slowly now, else None.

        A piece may take `seconds`, and in 10 s of waiting `rate` bytes per second must come.
        """
        if self._since is None:
            return None
        stream: StreamWindow | None = self._scope.get(STREAM)
        if now - self._since >= seconds:
            if stream is None or not stream.in_flight:
                return SlowBody(f"no body data for {seconds:g} seconds; send it again")
            self._since = now
        waited = self._waited + now - self._counted
        if waited < WINDOW:
            return None
        due = stream is None or (stream.inside_item and not stream.in_flight)
        if due and self._bytes < rate * waited:
            return SlowBody(
                f"{self._bytes} bytes of the body came in {waited:.0f} seconds; at least "
                f"{rate} per second are expected; send it again"
            )
        self._bytes, self._waited, self._counted = 0, 0.0, now
        return None
