"""Limits of the port for gRPC against clients that end no message and read no answer."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as over_grpc
from tritonclient.grpc import service_pb2

from app.grpc_service.server import ARRIVING_BYTES, WINDOW
from tests.chaos.harness.processes import usage
from tests.e2e.test_inference_grpc import METHOD, typed
from tests.e2e.test_inference_protocol import files
from tests.edge import listens
from tests.http2_streams import Connection
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
        found = client.infer("resnet18", [files([jpeg(1)], over_grpc)], client_timeout=PATIENCE)
        assert np.isfinite(found.as_numpy("SCORES")).all()


async def never_ending(ports: tuple[int, int, int]) -> None:
    """Hold 400 calls whose messages never end, and look at them while they are held."""
    http, rpc, pid = ports
    served(http, rpc)  # what a first call loads is no memory of the attack
    before = usage(pid).memory
    made = [await Connection.to(rpc, ATTACKER) for _ in range(8)]
    for each in made:
        for _ in range(50):
            each.call(METHOD, LARGEST)
    following = [asyncio.create_task(each.follow()) for each in made]
    end, most = time.monotonic() + HELD, 0
    while time.monotonic() < end or sum(each.sent for each in made) <= ARRIVING_BYTES // 4:
        await asyncio.sleep(0.1)
        most = max(most, usage(pid).memory - before)
    await asyncio.to_thread(served, http, rpc)
    most = max(most, usage(pid).memory - before)
    sent = sum(each.sent for each in made)
    assert not any(each.closed for each in made)
    assert ARRIVING_BYTES // 4 < sent <= ARRIVING_BYTES // 2 + 400 * 2 * WINDOW
    assert most < MOST_MEMORY
    for each in made:
        each.writer.close()
    await asyncio.gather(*following)


def test_messages_that_never_end_take_half_of_the_slots(ports: tuple[int, int, int]) -> None:
    asyncio.run(asyncio.wait_for(never_ending(ports), PATIENCE))


def test_a_compressed_message_is_not_unpacked_beyond_its_limit(ports: tuple[int, int, int]) -> None:
    http, rpc, pid = ports
    served(http, rpc)
    before = usage(pid).memory
    with grpc.insecure_channel(
        f"127.0.0.1:{rpc}", options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError, match="larger than max") as told:
            call(bytes(128 << 20), timeout=PATIENCE, compression=grpc.Compression.Gzip)
    assert told.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert usage(pid).memory - before < 64 << 20


def test_calls_in_progress_are_answered_while_the_server_stops(ports: tuple[int, int, int]) -> None:
    """Unary calls and calls whose messages are still to come, of all methods with a message."""
    http, rpc, pid = ports
    asked = typed("IMAGE", "BYTES", [16], bytes_contents=[jpeg(1)] * 16).SerializeToString()
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
        until(lambda: in_flight(http) > 0 or calls[-1].done())
        os.kill(pid, signal.SIGTERM)
        until(lambda: not listens(rpc))
        stopping.set()
        assert {(call.code(), call.details()) for call in calls} == {(grpc.StatusCode.OK, "")}


def in_flight(http: int) -> float:
    """Return the number of images that a server has not answered."""
    text = httpx.get(f"http://127.0.0.1:{http}/metrics", timeout=PATIENCE).text
    name = "darkroom_in_flight_images "
    (line,) = (each for each in text.splitlines() if each.startswith(name))
    return float(line.split()[1])
