"""Addresses are taken at once, and listened at later."""

import socket

import pytest

from app.connections.listening import bind


def test_a_client_is_refused_until_the_server_listens_and_a_second_server_then() -> None:
    (bound,) = bind("127.0.0.1", 0)
    with bound:
        address = bound.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        bound.listen()
        socket.create_connection(address).close()
        with pytest.raises(OSError, match=r"in use.*127\.0\.0\.1"):
            bind(*address)
