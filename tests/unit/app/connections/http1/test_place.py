"""What the socket of a connection tells: bytes that neither side has read yet."""

import asyncio
import socket

import pytest

from app.connections.http1.place import is_acknowledged, sends


@pytest.mark.parametrize("ends", [False, True])
def test_bytes_that_were_not_read_are_told_from_silence_and_from_the_end(ends: bool) -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            transport.pause_reading()
            assert not sends(transport)
            theirs.sendall(b"G")
            if ends:
                theirs.shutdown(socket.SHUT_WR)
            assert sends(transport)
            ours.recv(1)
            assert not sends(transport)
            transport.abort()

    asyncio.run(scenario())


def test_bytes_that_the_client_has_not_received_are_told_from_those_it_has() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            assert is_acknowledged(transport)
            transport.write(b"last")
            assert not is_acknowledged(transport)
            theirs.recv(100)
            assert is_acknowledged(transport)
            transport.abort()

    asyncio.run(scenario())
