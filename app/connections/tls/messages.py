"""Bound the handshake messages of a peer that speaks TLS, which OpenSSL does not.

A peer of TLS 1.3 may renew its keys as often as it likes. A message of 27 bytes asks for that, new
keys take 8 to 17 µs, and all messages that have arrived are handled in one turn of the event loop:
7 MB of them held it for four seconds. A peer of TLS 1.2 may ask for one handshake after another.
"""

import ssl
from typing import Any, cast

MOST_MESSAGES = 32
"""Handshake messages of one peer. A server sends six and some tickets, a client three; keys need to
be renewed after some hundred gigabytes (RFC 8446, section 5.5)."""

_HANDSHAKE = 22  # a type of content, as RFC 8446 numbers them


def bounded(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let connections of `context` break with SSLEOFError once their peer sent too many messages.

    Returns the same context. It holds for what is read through `SSLContext.wrap_bio`, which both
    event loops and the client of HTTP use.
    """
    context.__class__ = _Context
    inherited: Any = super(ssl.SSLContext, ssl.SSLContext)
    # The property of ssl.SSLContext itself would turn each number into an enumeration first, which
    # takes ten times as long, and this is called for every record.
    inherited._msg_callback.__set__(context, _on_message)
    return context


class _Connection(ssl.SSLObject):
    """One end of a connection; `incoming` has the encrypted bytes that were received."""

    incoming: ssl.MemoryBIO
    messages: int


class _Context(ssl.SSLContext):
    sslobject_class = _Connection

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any
    ) -> ssl.SSLObject:
        made = cast(_Connection, super().wrap_bio(incoming, outgoing, *more, **named))
        made.incoming, made.messages = incoming, 0
        return made


def _on_message(
    connection: object, direction: str, _version: int, content: int, _kind: int, _data: bytes
) -> None:
    """Count a message, and after too many take away what OpenSSL would read next."""
    if content == _HANDSHAKE and direction == "read" and isinstance(connection, _Connection):
        connection.messages += 1
        if connection.messages > MOST_MESSAGES:
            connection.incoming.read()
            connection.incoming.write_eof()
