"""Write the head of an answer together with the first piece of its body.

Each write is a system call that wakes the client and costs about 15 µs. Most answers consist of a
head and one piece, so one write is enough for them.
"""

import asyncio
from typing import Any


class AnswerStream:
    """The part of a transport that uvicorn's cycle uses, with a delay for the head of an answer.

    After `hold` the next piece waits for the piece after it, but not longer than this turn of the
    event loop lasts, because the first piece of a stream may come much later than the head.
    """

    __slots__ = ("_head", "_holds", "_transport", "is_closing")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""
        self._holds = False
        self.is_closing = transport.is_closing

    def hold(self) -> None:
        """Delay the next piece, which is the head of an answer that has a body."""
        self._holds = True

    def write(self, data: bytes) -> None:
        """Write one piece of an answer, with the delayed head before it."""
        if self._holds:
            self._holds = False
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(b"%b%b" % (head, data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after everything has been written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)
