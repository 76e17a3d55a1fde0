"""Requests that their headers alone refuse are answered on the bare socket, and nothing else is."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from starlette.types import Scope

from app.admission.counters import Counters, Total
from app.connections.bare import arrivals, discarded_connection
from app.connections.bare.peeking import FIRST_LOOK, LONGEST_HEAD
from app.connections.bare.resting import REST
from app.connections.bare.silent_connections import Member, SilentConnections
from app.connections.early_answer import EarlyAnswer
from app.connections.entrance import Entrance
from app.connections.guard import LINGER, Guard
from app.connections.http1 import bare_refusals
from app.connections.http1.bare_refusals import (
    LARGEST_HEAD,
    LARGEST_WHOLE,
    MOST_HEADS,
    BareRefusals,
)
from app.connections.http1.cycle import CLOSE, SHORT_REST
from app.connections.phases import READING
from tests.connection import LIMITS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

POST = b"POST /busy?a=b HTTP/1.1\r\nHost: x\r\n"
LAST = POST + b"Connection: close\r\n"
BUSY = EarlyAnswer(503, b"content-length: 4\r\n", b"busy")
ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nserver: darkroom\r\ncontent-length: 4\r\n\r\nbusy"
LAST_ANSWER = ANSWER.replace(b"darkroom\r\n", b"darkroom\r\nconnection: close\r\n")
DISCARDED = 4 << 20


def sized(head: bytes, n_bytes: int) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % n_bytes


@dataclass
class Server:
    """Connections in front of a server that refuses what goes to `/busy` while it is pressed."""

    stack: ExitStack
    pressed: bool = True
    asked: list[Scope] = field(default_factory=list)
    begun: list[bytes] = field(default_factory=list)
    members: set[Member] = field(default_factory=set)
    headers: list[tuple[bytes, bytes]] = field(default_factory=lambda: [(b"server", b"darkroom")])
    now: float = 0.0

    def __post_init__(self) -> None:
        self.guard = Guard(replace(LIMITS, discard_bytes=DISCARDED), clock=lambda: self.now)
        self.guard.decide, self.guard.pressed = self.decide, lambda: self.pressed
        self.counters = Counters()
        self.entrance = Entrance(self.guard, self.counters)
        bare = BareRefusals(self.guard, lambda: self.headers)
        self.silent = SilentConnections(self.guard, self.members, bare)
        self.stack.callback(self.silent.end)

    def decide(self, scope: Scope) -> EarlyAnswer | None:
        self.asked.append(scope)
        return BUSY if scope["path"] == "/busy" else None

    def come(self, request: bytes, host: str = "192.0.2.1") -> socket.socket:
        """Connect a client that has sent `request`; return its end of the connection."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
        theirs.setblocking(False)
        theirs.send(request)
        self.enter(ours, theirs, host)
        return theirs

    def come_by_tcp(self, request: bytes) -> socket.socket:
        """Do the same over TCP, where a close with unread bytes resets the connection."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname(), timeout=100)
            ours, _ = listening.accept()
        theirs.send(request)
        ours.recv(len(request), socket.MSG_PEEK | socket.MSG_WAITALL)
        self.enter(ours, theirs)
        return theirs

    def enter(self, ours: socket.socket, theirs: socket.socket, host: str = "192.0.2.1") -> None:
        for each in (ours, theirs):
            self.stack.enter_context(each)
        ticket = self.entrance.enter(ours, host)
        assert ticket is not None
        self.silent.enter(ours, ticket, lambda: self.begun.append(ours.recv(1 << 16)))

    @property
    def connections(self) -> int:
        return self.counters.total(Total.CONNECTIONS)


class Recorded(socket.socket):
    """A socket that notes how much it is asked for, and the flags of what it sends."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(fileno=connection.detach())
        self.asked: list[int] = []
        self.flags: list[int] = []

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        self.asked.append(size)
        return super().recv(size, flags)

    def send(self, data: "ReadableBuffer", flags: int = 0, /) -> int:
        self.flags.append(flags)
        return super().send(data, flags)


def recorded(server: Server, request: bytes) -> Recorded:
    """Let a client come that has sent `request`; return the server's end of its connection."""
    pair = socket.socketpair()
    ours, theirs = Recorded(pair[0]), pair[1]
    theirs.send(request)
    server.enter(ours, theirs)
    return ours


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not found():  # noqa: ASYNC110
            await asyncio.sleep(0)


def run(scenario: Callable[[Server], Awaitable[None]]) -> None:
    async def whole() -> None:
        with ExitStack() as stack:
            await scenario(Server(stack))

    asyncio.run(whole())


def test_a_refused_request_gets_its_answer_and_its_connection_never_begins() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(LAST, 5) + b"hello")
        assert client.recv(1 << 16) == LAST_ANSWER
        assert client.recv(1) == b""
        assert not server.begun
        assert not server.members
        assert server.connections == 0

    run(scenario)


def test_a_short_head_is_looked_at_once_and_its_body_is_not_copied() -> None:
    async def scenario(server: Server) -> None:
        ours = recorded(server, sized(LAST, 1 << 17) + bytes(1 << 16))
        assert ours.asked == [FIRST_LOOK]
        assert len(server.asked) == 1

    run(scenario)


def test_a_request_whose_head_is_longer_than_the_first_look_is_refused_as_well() -> None:
    async def scenario(server: Server) -> None:
        head = LAST + b"X: " + b"x" * FIRST_LOOK + b"\r\n"
        assert server.come(sized(head, 0)).recv(1 << 16) == LAST_ANSWER

    run(scenario)


@pytest.mark.parametrize("large", [True, False])
def test_the_answer_to_a_large_upload_is_sent_with_the_end_of_its_connection(large: bool) -> None:
    async def scenario(server: Server) -> None:
        (flags,) = recorded(server, sized(LAST, LARGEST_WHOLE if large else 100)).flags
        assert bool(flags & socket.MSG_MORE) is large

    run(scenario)


def test_the_decision_is_made_by_what_the_head_says() -> None:
    async def scenario(server: Server) -> None:
        server.come(sized(LAST + b"X-Deadline-Ms: 7\r\n", 0))
        (scope,) = server.asked
        asked = {key: scope[key] for key in ("method", "path", "query_string", "client")}
        assert asked == {
            "method": "POST",
            "path": "/busy",
            "query_string": b"a=b",
            "client": ("192.0.2.1", 0),
        }
        assert (b"x-deadline-ms", b"7") in scope["headers"]

    run(scenario)


def test_equal_heads_are_parsed_once_and_decided_each_time_for_their_own_clients() -> None:
    async def scenario(server: Server) -> None:
        request = sized(LAST, 0)
        for host in ("192.0.2.1", "192.0.2.2"):
            assert server.come(request, host).recv(1 << 16) == LAST_ANSWER
        first, second = server.asked
        assert first is not second
        assert first["headers"] is second["headers"]
        assert [each["client"][0] for each in server.asked] == ["192.0.2.1", "192.0.2.2"]

    run(scenario)


def test_a_head_that_was_parsed_is_parsed_again_by_other_limits() -> None:
    async def scenario(server: Server) -> None:
        request = sized(LAST, 0)
        server.come(request)
        server.guard.limits = replace(server.guard.limits, header_lines=1)
        server.come(request)
        assert server.begun == [request], "the protocol answers that there are too many lines"

    run(scenario)


def test_the_number_of_heads_that_are_remembered_is_bounded() -> None:
    async def scenario(server: Server) -> None:
        bare = BareRefusals(server.guard, lambda: server.headers)
        for number in range(3 * MOST_HEADS):
            head = sized(POST + b"X: %d%s\r\n" % (number, b"x" * number * 9), 0)
            assert bare._head(head) is not None
            assert len(bare._heads) <= MOST_HEADS
            assert max(map(len, bare._heads), default=0) <= LARGEST_HEAD

    run(scenario)


def test_a_kept_connection_is_refused_again_and_begins_with_the_first_request_that_is_not() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(POST, 5) + b"hello")
        assert client.recv(1 << 16) == ANSWER
        client.send(sized(POST, 0))
        await until(lambda: len(server.asked) == 2)
        assert client.recv(1 << 16) == ANSWER
        other = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        client.send(other)
        await until(lambda: bool(server.begun))
        assert server.begun == [other]
        assert not server.members
        assert server.connections == 1

    run(scenario)


def test_the_short_rest_of_a_body_is_discarded_and_the_next_request_is_found_behind_it() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(POST, SHORT_REST))
        assert client.recv(1 << 16) == ANSWER
        next_request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        rest = memoryview(b"." * SHORT_REST + next_request)
        while rest:
            with suppress(BlockingIOError):
                rest = rest[client.send(rest) :]
            await asyncio.sleep(0)
        await until(lambda: bool(server.begun))
        assert server.begun == [next_request]

    run(scenario)


def test_a_long_rest_ends_the_connection_and_is_read_so_that_the_client_sees_no_reset() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(POST, 2 * SHORT_REST) + b".")
        assert client.recv(1 << 16) == LAST_ANSWER
        assert client.recv(1) == b""
        client.send(b"." * 1000)
        client.close()
        await until(lambda: server.connections == 0)
        assert not server.members

    run(scenario)


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\r\n", id="line end"),
        pytest.param(sized(LAST, 5) + b"hello", id="request"),
        pytest.param(b"." * 2 * LONGEST_HEAD, id="more than is looked at"),
    ],
)
def test_what_follows_the_last_request_of_a_connection_resets_nothing(extra: bytes) -> None:
    async def scenario(server: Server) -> None:
        client = server.come_by_tcp(sized(LAST, 5) + b"hello" + extra)
        assert client.recv(1 << 16) == LAST_ANSWER
        assert client.recv(1) == b""
        client.close()
        await until(lambda: server.connections == 0)
        assert not server.members
        assert not server.begun

    run(scenario)


def test_a_request_as_long_as_a_piece_is_not_taken_for_all_that_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = sized(LAST, 5) + b"hello"
    for module in (bare_refusals, discarded_connection):
        monkeypatch.setattr(module, "PIECE", len(request))

    async def scenario(server: Server) -> None:
        client = server.come(request + b"\r\n")
        assert client.recv(1 << 16) == LAST_ANSWER
        assert server.connections == 1
        client.close()
        await until(lambda: server.connections == 0)

    run(scenario)


def test_a_long_rest_over_tcp_resets_nothing() -> None:
    async def scenario(server: Server) -> None:
        client = server.come_by_tcp(sized(POST, 2 * SHORT_REST) + b".")
        assert client.recv(1 << 16) == LAST_ANSWER
        client.send(b"." * 1000)
        assert client.recv(1) == b""
        client.close()
        await until(lambda: server.connections == 0)

    run(scenario)


def test_a_client_that_never_stops_sending_is_cut_off() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(LAST, 1 << 40))
        sent = 0
        with suppress(ConnectionError):
            while sent <= 2 * DISCARDED:
                with suppress(BlockingIOError):
                    sent += client.send(b"." * 65536)
                await asyncio.sleep(0)
        assert DISCARDED <= sent <= 2 * DISCARDED
        assert server.connections == 0

    run(scenario)


def test_a_connection_that_makes_room_ends_without_a_reset_when_all_was_sent() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(LAST, 6) + b"hello")
        client.send(b".")
        server.now = READING
        assert server.guard.make_room("192.0.2.1")
        assert client.recv(1 << 16) == LAST_ANSWER
        assert client.recv(1) == b""

    run(scenario)


def test_a_refused_client_whose_body_never_comes_makes_room_after_a_second() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(POST, 1_000_000))
        assert client.recv(1 << 16) == ANSWER
        assert not server.guard.make_room("192.0.2.1")
        server.now = READING
        assert server.guard.make_room("192.0.2.1")
        assert server.connections == 0
        assert client.recv(1) == b""

    run(scenario)


def test_a_large_body_is_not_read_before_its_client_had_time_to_leave() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(LAST, 16_000_000))
        assert client.recv(1 << 16) == LAST_ANSWER

        def sends() -> bool:
            with suppress(BlockingIOError):
                return bool(client.send(bytes(1 << 16)))
            return False

        while sends():
            pass
        for _ in range(20):  # turns
            await asyncio.sleep(0)
        assert not sends()
        await until(sends)

    run(scenario)


def test_the_end_of_the_server_resets_no_client_whose_large_body_is_unread() -> None:
    async def scenario(server: Server) -> None:
        bare = BareRefusals(server.guard, lambda: server.headers)
        server.silent = SilentConnections(server.guard, server.members, bare)
        client = server.come(sized(LAST, 1 << 17) + bytes(1 << 16))
        assert client.recv(1 << 16) == LAST_ANSWER
        server.silent.end()
        assert client.recv(1) == b""
        assert server.connections == 0

    run(scenario)


def test_many_refused_clients_are_read_before_further_silent_ones_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "BEGUN_AT_ONCE", 2)

    async def scenario(server: Server) -> None:
        refused = [server.come(sized(LAST, 6) + b"hello") for _ in range(10)]
        for _ in range(10):  # turns
            await asyncio.sleep(0)
        assert not server.silent.arrivals.waiting
        await asyncio.sleep(2 * REST)  # until they are watched
        server.pressed = False
        silent = [server.come(b"") for _ in range(10)]
        for each in refused:
            each.close()
        for each in silent:
            each.send(b"G")
        server.silent._look()
        assert len(server.begun) == 2
        assert server.connections == 10

    run(scenario)


def test_a_client_that_stops_within_its_body_is_closed_after_the_time_for_that() -> None:
    async def scenario(server: Server) -> None:
        client = server.come(sized(POST, 10))
        assert client.recv(1 << 16) == ANSWER
        server.now = LINGER - 1
        server.guard.phases.sweep()
        assert server.connections == 1
        server.now = LINGER
        server.guard.phases.sweep()
        assert server.connections == 0
        assert client.recv(1) == b""

    run(scenario)


def test_a_server_that_is_leaving_ends_the_connection() -> None:
    async def scenario(server: Server) -> None:
        server.headers.append(CLOSE)
        client = server.come(sized(POST, 0))
        assert client.recv(1 << 16) == LAST_ANSWER
        assert client.recv(1) == b""

    run(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(sized(POST, 0)[:-1], id="incomplete head"),
        pytest.param(POST + b"X: " + b"x" * LONGEST_HEAD + b"\r\n\r\n", id="long head"),
        pytest.param(POST.replace(b"Host: x\r\n", b"") + b"\r\n", id="no host"),
        pytest.param(POST + b"Content-Length: x\r\n\r\n", id="wrong length"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n", id="chunks"),
        pytest.param(POST.replace(b"1.1", b"1.0") + b"\r\n", id="HTTP/1.0"),
        pytest.param(POST + b"Upgrade: h2c\r\nConnection: upgrade\r\n\r\n", id="upgrade"),
        pytest.param(b"\x16\x03\x01" + sized(POST, 0), id="no HTTP"),
        pytest.param(sized(POST.replace(b"busy", b"free"), 0), id="not refused"),
    ],
)
def test_everything_else_is_left_to_the_protocol_untouched(request_: bytes) -> None:
    async def scenario(server: Server) -> None:
        client = server.come(request_)
        assert server.begun == [request_]
        with pytest.raises(BlockingIOError):
            client.recv(1)

    run(scenario)


def test_a_server_that_refuses_nothing_parses_nothing_twice() -> None:
    async def scenario(server: Server) -> None:
        server.pressed = False
        server.come(sized(POST, 0))
        assert server.begun == [sized(POST, 0)]
        assert not server.asked

    run(scenario)
