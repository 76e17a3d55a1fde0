"""Write the head of an answer together with the first piece of its body, or its first bytes early.

Each write is a system call that wakes the client and costs about 15 µs. Most answers consist of a
head and one piece, so one write is enough for them.

A client that has closed its half of the connection may wait for its answer, or may have left: the
server receives the same end of the stream. Only the answer of the client's host to further bytes
tells: a host whose program has left sends a reset. So the server sends bytes of the answer that do
not depend on the answer (`probe`).
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

START = b"HTTP/1.1 "
"""The bytes that every answer begins with."""

ZEROS = 8
"""Zeros that may stand before the length of a chunk; curl takes lengths of 16 digits."""


class AnswerStream:
    """The part of a transport that uvicorn's cycle uses, with a delay for the head of an answer.

    After `hold` the next piece waits for the piece after it, but not longer than this turn of the
    event loop lasts, because the first piece of a stream may come much later than the head.
    """

    __slots__ = ("_begun", "_head", "_holds", "_transport", "_zeros", "is_closing")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""
        self._holds = False
        self._begun = self._zeros = 0
        """Bytes of the next answer's START, and zeros of a chunk, that have been sent."""
        self.is_closing = transport.is_closing

    def hold(self) -> None:
        """Delay the next piece, which is the head of an answer that has a body."""
        self._holds = True

    def write(self, data: bytes) -> None:
        """Write one piece of an answer, with the delayed head before it."""
        if self._begun:
            data, self._begun = data[self._begun :], 0
        if self._holds:
            self._holds = False
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(b"%b%b" % (head, data))
        else:
            self._transport.write(data)

    def probe(self, cycle: RequestResponseCycle) -> None:
        """Send one byte of the answer of `cycle` before its time, if there is one that is known.

        The byte belongs to START before the answer, and between two chunks it is a leading zero of
        the next chunk's length (RFC 9112, section 7.1).
        """
        self._flush()
        if not cycle.response_started and self._begun < len(START):
            self._transport.write(START[self._begun : self._begun + 1])
            self._begun += 1
        elif cycle.response_started and cycle.chunked_encoding and self._zeros < ZEROS:
            self._transport.write(b"0")
            self._zeros += 1

    def close(self) -> None:
        """Close the connection after everything has been written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)
