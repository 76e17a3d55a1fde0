"""Keep the first frames of a client of HTTP/2 until it has acknowledged the server's settings.

Source: RFC 9113, sections 3.4 (preface), 4.1 (frames) and 6.5 (SETTINGS).
"""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEAD = 9
"""Bytes before the content of a frame."""

SETTINGS, ACK = 4, 1
"""The type of a frame, and the flag by which it acknowledges."""

LONGEST_SETTINGS = 1 << 10
"""Bytes of a client's settings, each of which takes six."""

MOST_EARLY = 1 << 18
"""Bytes that a client may send before it acknowledges. Flow control allows 64 kB of messages, and
clients that wait for the server's settings send nothing but an acknowledgement."""


class FirstFrames:
    """The bytes that one client sent before it acknowledged the settings of the server.

    `opening` are its preface and its own settings, which a server needs before it sends its own;
    empty while they are incomplete.
    """

    def __init__(self) -> None:
        self.opening = b""
        self._bytes = bytearray()
        self._place = len(PREFACE)
        """Where the first frame begins that has not been looked at."""
        self._acknowledgement: tuple[int, int] | None = None

    @property
    def acknowledged(self) -> bool:
        """Return whether the client has acknowledged the server's settings."""
        return self._acknowledgement is not None

    def add(self, data: bytes) -> None:
        """Add what a client sent; raises ValueError for what no client of HTTP/2 sends first."""
        self._bytes += data
        if not self._bytes.startswith(PREFACE[: len(self._bytes)]):
            raise ValueError("it is no client of HTTP/2")
        while not self.acknowledged and self._next():
            pass
        if len(self._bytes) > MOST_EARLY:
            raise ValueError(f"more than {MOST_EARLY} bytes before the settings are acknowledged")

    def rest(self) -> bytes:
        """Return the bytes behind the opening, with the acknowledgement first."""
        assert self._acknowledgement is not None
        start, end = self._acknowledgement
        before = self._bytes[len(self.opening) : start]
        return bytes(self._bytes[start:end] + before + self._bytes[end:])

    def _next(self) -> bool:
        """Look at the next frame; return whether it has arrived."""
        start = self._place
        if len(self._bytes) < start + HEAD:
            return False
        length = int.from_bytes(self._bytes[start : start + 3], "big")
        kind, flags = self._bytes[start + 3], self._bytes[start + 4]
        if not self.opening and (kind != SETTINGS or flags & ACK or length > LONGEST_SETTINGS):
            raise ValueError("the first frame of a client is its settings")
        end = start + HEAD + length
        if len(self._bytes) < end:
            return False
        if not self.opening:
            self.opening = bytes(self._bytes[:end])
        elif kind == SETTINGS and flags & ACK:
            self._acknowledgement = start, end
        self._place = end
        return True
