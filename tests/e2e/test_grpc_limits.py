"""Limits of gRPC's port that a server with short times shows, and clients that keep no rule."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import pytest

from app.grpc_service.server import STREAMS
from tests.e2e.test_grpc_hostile import ATTACKER, MOST_MEMORY, resident, served
from tests.http2_streams import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    SETTINGS,
    Connection,
    frame,
    header_block,
)
from tests.ports import free_port
from tests.server import PATIENCE, serving

LIVE = "/inference.GRPCInferenceService/ServerLive"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@contextmanager
def started(*flags: str) -> Iterator[tuple[int, int, int]]:
    """Start a server; yield its ports for HTTP and gRPC, and its process."""
    port = free_port()
    common = ("--weights", "random", "--precision", "fp32", "--log-level", "error")
    with serving(*common, *flags, "--grpc-port", str(port), "--grace", "0") as server:
        yield server.port, port, server.process.pid


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int, int]]:
    with started() as found:
        yield found


def test_metadata_without_end_before_the_settings_are_acknowledged_take_no_memory(
    ports: tuple[int, int, int],
) -> None:
    http, rpc, pid = ports
    served(http, rpc)
    before = resident(pid)
    field = b"\0\x01x\x7f\x81\x7d" + bytes(16_000).replace(b"\0", b"a")
    opened = []
    for _ in range(50):
        connection = socket.create_connection(("127.0.0.1", rpc), source_address=(ATTACKER, 0))
        opened.append(connection)
        with suppress(OSError):  # the server may close it
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            connection.sendall(frame(HEADERS, 0, 1, header_block(LIVE)))
            for _ in range(800):
                connection.sendall(frame(CONTINUATION, 0, 1, field))
    served(http, rpc)
    found = resident(pid) - before
    for each in opened:
        each.close()
    assert found < MOST_MEMORY


def test_metadata_beyond_a_quarter_of_the_headers_are_refused_each_time(
    ports: tuple[int, int, int],
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
        call = channel.unary_unary(LIVE)
        for _ in range(20):
            call(b"", metadata=[("a", "x" * 14_000)], timeout=PATIENCE)
            with pytest.raises(grpc.RpcError, match="metadata size exceeds") as told:
                call(b"", metadata=[("a", "x" * 17_000)], timeout=PATIENCE)
            assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_compressed_message_is_not_unpacked_beyond_its_limit(ports: tuple[int, int, int]) -> None:
    http, rpc, pid = ports
    served(http, rpc)
    before = resident(pid)
    with grpc.insecure_channel(
        f"127.0.0.1:{rpc}", options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError, match="larger than max") as told:
            call(bytes(512 << 20), timeout=PATIENCE, compression=grpc.Compression.Gzip)
    assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert resident(pid) - before < MOST_MEMORY


def test_an_answer_that_is_not_read_ends_its_connection_long_before_an_idle_one() -> None:
    with started("--header-timeout", "1", "--idle-timeout", "600") as (_, rpc, _pid):

        async def unread() -> None:
            made = await Connection.to(rpc, ATTACKER)
            made.ask(LIVE)
            await made.follow()
            made.writer.close()

        asyncio.run(asyncio.wait_for(unread(), PATIENCE))
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            channel.unary_unary(LIVE)(b"", timeout=PATIENCE)


def test_a_connection_whose_answers_are_not_read_ends_and_one_that_is_used_loses_no_call() -> None:
    times = ("--idle-timeout", "0.5", "--header-timeout", "0.5", "--max-deadline", "0.5")
    with started(*times) as (_, rpc, _pid):

        async def unread() -> int:
            made = await Connection.to(rpc, ATTACKER)
            following = asyncio.create_task(made.follow())
            while not made.closed:  # without new calls it would end as an idle one
                made.ask(LIVE)
                await asyncio.sleep(0.2)
            made.writer.close()
            await following
            return len(made.streams)

        assert asyncio.run(unread()) < STREAMS  # with these it could begin no more, and be idle
        with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
            end = time.monotonic() + 4
            while time.monotonic() < end:
                channel.unary_unary(LIVE)(b"", timeout=PATIENCE)


def test_what_clients_send_does_not_fill_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    with started() as (http, rpc, _):
        wrong = header_block(LIVE).replace(b"\x04http", b"\x04gone")
        with socket.create_connection(("127.0.0.1", rpc)) as client:
            client.sendall(PREFACE + frame(SETTINGS, 0, 0))
            client.recv(1000)
            client.sendall(frame(SETTINGS, 1, 0) + frame(HEADERS, END_HEADERS, 1, wrong))
            client.sendall(frame(DATA, END_STREAM, 1, bytes(5)))
            client.recv(1000)
        served(http, rpc)
    assert "scheme" not in capfd.readouterr().err
