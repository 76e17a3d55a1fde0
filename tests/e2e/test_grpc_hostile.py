"""Limits of the port for gRPC against clients that end no message and read no answer."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
from tritonclient.grpc import service_pb2

from app.grpc_service.server import ARRIVING_BYTES, WINDOW
from tests.e2e.test_inference_grpc import METHOD, files, typed
from tests.http2_streams import Connection, Stream
from tests.pictures import jpeg
from tests.ports import free_port
from tests.server import PATIENCE, serving, until

pytestmark = pytest.mark.slow

LARGEST = 8 << 20
"""Bytes of a message by default."""

ATTACKER = "127.0.0.9"

HELD = 3.0
"""Seconds for which an attack goes on before it is looked at."""

MOST_MEMORY = 400 << 20
"""Bytes that an attack may take, as docs/reliability.md promises."""

LIVE = "/inference.GRPCInferenceService/ServerLive"

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


def served(http: int, rpc: int) -> None:
    """Check that both ports answer another client."""
    assert httpx.get(f"http://127.0.0.1:{http}/livez", timeout=PATIENCE).status_code == 200
    with over_grpc.InferenceServerClient(f"127.0.0.1:{rpc}") as client:
        found = client.infer("resnet18", [files(over_grpc, [jpeg(1)])], client_timeout=PATIENCE)
        assert np.isfinite(found.as_numpy("SCORES")).all()


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test, for which there is a time within which it must end."""
    return asyncio.run(asyncio.wait_for(test, PATIENCE))


def held_calls(connections: list[Connection]) -> list[Stream]:
    """Return the calls that have not ended, of connections that are open."""
    opened = [each for each in connections if not each.closed]
    return [call for each in opened for call in each.streams.values() if not call.ended]


async def attacked(
    ports: tuple[int, int, int], connections: int, calls: int, announced: int
) -> Found:
    """Hold calls whose messages never end, and look at them while they are held."""
    http, rpc, pid = ports
    served(http, rpc)  # what a first call loads is no memory of the attack
    before = resident(pid)
    made = [await Connection.to(rpc, ATTACKER) for _ in range(connections)]
    for each in made:
        for _ in range(calls):
            each.call(METHOD, announced)
    following = [asyncio.create_task(each.follow()) for each in made]
    end, most = time.monotonic() + HELD, 0
    while time.monotonic() < end:
        await asyncio.sleep(0.1)
        most = max(most, resident(pid) - before)
    await asyncio.to_thread(served, http, rpc)
    most = max(most, resident(pid) - before)
    held = len(held_calls(made))
    ended = sum(len(each.streams) for each in made if not each.closed) - held
    found = Found(sum(each.sent for each in made), held, ended, most)
    for each in made:
        each.writer.close()
    await asyncio.gather(*following)
    return found


def test_messages_that_never_end_take_half_of_the_slots(ports: tuple[int, int, int]) -> None:
    found = run(attacked(ports, connections=8, calls=50, announced=LARGEST))
    assert ARRIVING_BYTES // 4 < found.sent <= ARRIVING_BYTES // 2 + 400 * 2 * WINDOW
    assert found.held + found.ended == 400
    assert found.memory < MOST_MEMORY


def test_a_compressed_message_is_not_unpacked_beyond_its_limit(ports: tuple[int, int, int]) -> None:
    http, rpc, pid = ports
    served(http, rpc)
    before = resident(pid)
    with grpc.insecure_channel(
        f"127.0.0.1:{rpc}", options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError, match="larger than max") as told:
            call(bytes(128 << 20), timeout=PATIENCE, compression=grpc.Compression.Gzip)
    assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert resident(pid) - before < 64 << 20


def test_calls_in_progress_are_answered_while_the_server_stops(
    ports: tuple[int, int, int],
) -> None:
    """Unary calls and calls whose messages are still to come, of all methods with a message."""
    http, rpc, pid = ports
    asked = typed("IMAGE", "BYTES", [64], bytes_contents=[jpeg(1)] * 64).SerializeToString()
    model = service_pb2.ModelReadyRequest(name="resnet18").SerializeToString()
    later = {LIVE.replace("ServerLive", each): model for each in ("ModelReady", "ModelMetadata")}
    stopping = threading.Event()

    def message(content: bytes) -> Iterator[bytes]:
        stopping.wait(PATIENCE)
        yield content

    with grpc.insecure_channel(f"127.0.0.1:{rpc}") as channel:
        calls = [
            channel.stream_unary(path).future(message(content), timeout=PATIENCE)
            for path, content in (*later.items(), (METHOD, asked))
        ]
        # Calls arrive in their order, and calls without a message are not counted.
        calls.append(channel.unary_unary(METHOD).future(asked, timeout=PATIENCE))
        until(lambda: under_way(http) == 1 or calls[-1].done())
        os.kill(pid, signal.SIGTERM)
        until(lambda: is_closed(rpc))
        stopping.set()
        assert {(call.code(), call.details()) for call in calls} == {(grpc.StatusCode.OK, "")}


def is_closed(port: int) -> bool:
    """Return whether nothing listens at a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


def under_way(http: int) -> float:
    """Return the number of requests with images that a server has not answered."""
    text = httpx.get(f"http://127.0.0.1:{http}/metrics", timeout=PATIENCE).text
    name = "darkroom_requests_under_way "
    (line,) = (each for each in text.splitlines() if each.startswith(name))
    return float(line.split()[1])
