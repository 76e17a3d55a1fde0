"""A client of gRPC that begins calls by the thousand and ends no message."""

import asyncio
import itertools
import os
import signal
import socket
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as over_grpc

from app.grpc_service.calls import MOST_CALLS, REASON
from app.grpc_service.limits.gate import MOST_CONNECTIONS
from app.grpc_service.limits.message_slots import COPIES, MEMORY
from app.grpc_service.server import WINDOW
from tests.e2e.test_inference_grpc import METHOD, files, typed
from tests.http2_streams import Connection, Stream
from tests.pictures import jpeg
from tests.ports import free_port
from tests.server import PATIENCE, serving

LARGEST = 8 << 20
"""Bytes of a message by default."""

ALL_SLOTS = MEMORY // COPIES
"""Bytes of the messages that may arrive at the same time."""

MANY = 1 << 29
"""Bytes of complete messages after which their memory is looked at."""

ATTACKER = "127.0.0.9"

ATTACKERS = tuple(f"127.0.0.{last}" for last in range(10, 20))

HELD = 3.0
"""Seconds for which an attack goes on before it is looked at."""

MOST_MEMORY = 300 << 20
"""Bytes that an attack may take, as docs/reliability.md promises."""

SPARE = 8
"""Descriptors of a server that come and go."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """What an attack had: bytes sent, calls that are held, calls that were ended, and memory."""

    sent: int
    held: int
    ended: int
    memory: int


def resident(pid: int) -> int:
    """Return the bytes of a process's memory that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int, int]]:
    """Start a server; yield its ports for HTTP and gRPC, and its process."""
    port = free_port()
    flags = ("--weights", "random", "--precision", "fp32", "--log-level", "error")
    with serving(*flags, "--grpc-port", str(port), "--grace", "0") as server:
        yield server.port, port, server.process.pid


def served(http: int, rpc: int) -> None:
    """Check that both ports answer another client."""
    assert httpx.get(f"http://127.0.0.1:{http}/livez", timeout=PATIENCE).status_code == 200
    with over_grpc.InferenceServerClient(f"127.0.0.1:{rpc}") as client:
        found = client.infer("resnet18", [files(over_grpc, [jpeg(1)])], client_timeout=PATIENCE)
        assert np.isfinite(found.as_numpy("SCORES")).all()


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test, for which there is a time within which it must end."""
    return asyncio.run(asyncio.wait_for(test, PATIENCE))


def under_way(connections: list[Connection]) -> list[Stream]:
    """Return the calls that have not ended, of connections that are open."""
    opened = [each for each in connections if not each.closed]
    return [call for each in opened for call in each.streams.values() if not call.ended]


async def attacked(
    ports: tuple[int, int, int],
    connections: int,
    calls: int,
    announced: int,
    head: bytes = b"",
    addresses: Sequence[str] = (ATTACKER,),
) -> Found:
    """Hold calls whose messages never end, and look at them while they are held.

    It looks until no more calls are held than an address may have. With a `head`, the messages end,
    and their calls wait to be computed. Then it looks until many more bytes came than all slots
    hold. The connections are those of the addresses in turn.
    """
    http, rpc, pid = ports
    served(http, rpc)  # what a first call loads is no memory of the attack
    before = resident(pid)
    sources = itertools.islice(itertools.cycle(addresses), connections)
    made = [await Connection.to(rpc, source) for source in sources]
    for each in made:
        for _ in range(calls):
            each.call(METHOD, announced, head, whole=bool(head))
    following = [asyncio.create_task(each.follow()) for each in made]
    end, most = time.monotonic() + HELD, 0
    least = MANY if head else 0
    while (
        time.monotonic() < end
        or sum(each.sent for each in made) < least
        or len(under_way(made)) > MOST_CALLS // 2
    ):
        await asyncio.sleep(0.1)
        most = max(most, resident(pid) - before)
    await asyncio.to_thread(served, http, rpc)
    most = max(most, resident(pid) - before)
    held = len(under_way(made))
    ended = sum(len(each.streams) for each in made if not each.closed) - held
    found = Found(sum(each.sent for each in made), held, ended, most)
    for each in made:
        each.writer.close()
    await asyncio.gather(*following)
    return found


def test_messages_that_never_end_take_half_of_the_slots(ports: tuple[int, int, int]) -> None:
    found = run(attacked(ports, connections=8, calls=100, announced=LARGEST))
    assert ALL_SLOTS // 4 < found.sent <= ALL_SLOTS // 2 + MOST_CALLS * 2 * WINDOW
    assert found.held == MOST_CALLS // 2
    assert found.held + found.ended == 800
    assert found.memory < MOST_MEMORY


@pytest.mark.parametrize("addresses", [(ATTACKER,), ATTACKERS], ids=["one", "ten"])
def test_messages_that_came_take_no_memory_while_they_wait(
    ports: tuple[int, int, int], addresses: Sequence[str]
) -> None:
    side = 1600
    asked = typed("PIXELS", "UINT8", [1, side, side, 3])
    asked.raw_input_contents.append(bytes(3 * side * side))
    body = asked.SerializeToString()
    head = body[: len(body) - 3 * side * side]
    found = run(attacked(ports, 10, 16, len(body), head, addresses))
    assert found.sent >= MANY
    assert found.memory < MOST_MEMORY


def test_ten_thousand_calls_leave_room_for_others(ports: tuple[int, int, int]) -> None:
    found = run(attacked(ports, connections=100, calls=100, announced=0))
    # grpcio refuses some calls by itself when a busy event loop accepts them late.
    assert MOST_CALLS // 4 < found.held <= MOST_CALLS // 2
    assert found.held + found.ended == 10_000
    metrics = httpx.get(f"http://127.0.0.1:{ports[0]}/metrics", timeout=PATIENCE).text
    assert f'reason="{REASON}"' in metrics
    assert found.memory < MOST_MEMORY


def test_answers_that_are_not_read_leave_room_for_others(ports: tuple[int, int, int]) -> None:
    async def held() -> int:
        made = [await Connection.to(ports[1], ATTACKER) for _ in range(8)]
        for each in made:
            for _ in range(100):
                each.ask("/inference.GRPCInferenceService/ServerLive")
        following = [asyncio.create_task(each.follow()) for each in made]
        await asyncio.sleep(HELD)
        while len(under_way(made)) > MOST_CALLS // 2:  # noqa: ASYNC110 (calls end in the server)
            await asyncio.sleep(0.1)
        try:
            await asyncio.to_thread(served, *ports[:2])
            return len(under_way(made))
        finally:
            for each in made:
                each.writer.close()
            await asyncio.gather(*following)

    assert run(held()) == MOST_CALLS // 2


def test_connections_beyond_their_number_are_closed(ports: tuple[int, int, int]) -> None:
    http, rpc, pid = ports
    served(http, rpc)
    files_before = len([*Path(f"/proc/{pid}/fd").iterdir()])
    opened = [
        socket.create_connection(("127.0.0.1", rpc), source_address=(ATTACKER, 0))
        for _ in range(2 * MOST_CONNECTIONS)
    ]
    try:
        assert httpx.get(f"http://127.0.0.1:{http}/livez", timeout=PATIENCE).status_code == 200
        held = len([*Path(f"/proc/{pid}/fd").iterdir()]) - files_before
        assert held <= MOST_CONNECTIONS + SPARE
        served(http, rpc)  # another address has connections of its own
    finally:
        for each in opened:
            each.close()
    served(http, rpc)


def test_a_call_in_progress_is_answered_while_the_server_stops(
    ports: tuple[int, int, int],
) -> None:
    http, rpc, pid = ports
    asked = typed("IMAGE", "BYTES", [64], bytes_contents=[jpeg(1)] * 64)
    with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
        call = channel.unary_unary(METHOD).future(asked.SerializeToString(), timeout=PATIENCE)
        while not in_flight(http):
            assert not call.done(), "it ended before it was seen"
        os.kill(pid, signal.SIGTERM)
        assert (call.code(), call.details()) == (grpc.StatusCode.OK, "")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", rpc))


def in_flight(http: int) -> float:
    """Return the images that a server has admitted."""
    text = httpx.get(f"http://127.0.0.1:{http}/metrics", timeout=PATIENCE).text
    (line,) = (each for each in text.splitlines() if each.startswith("darkroom_in_flight_images "))
    return float(line.split()[1])
