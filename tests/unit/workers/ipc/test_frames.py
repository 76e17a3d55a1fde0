import asyncio

import msgspec
import pytest

from models.domain.errors import (
    FieldError,
    InternalError,
    InvalidParameter,
    ServiceError,
    WeightsMissing,
    WorkerLost,
)
from models.domain.image import Subsampling
from models.domain.job import Operation, ReleaseReason, Trace
from workers.filters.registry import parse_chain
from workers.ipc import conversion
from workers.ipc import frames as wire
from workers.ipc.frames import Cancel, Done, FrameProtocol, Submit
from workers.operations import (
    Classify,
    DeviceJpeg,
    FilterChain,
    FunctionToApply,
    NetworkOutput,
)

CHAIN = parse_chain([{"name": "gaussian_blur", "sigma": 2.5}, {"name": "sobel", "axis": "x"}])
SUBMIT = Submit(7, 4096, 8192, (3, 2, 3), {"top_k": 1, "function": "none"}, 12.5, "bulk")


@pytest.mark.parametrize(
    "operation",
    [
        Classify(3, FunctionToApply.SIGMOID),
        Classify(),
        Classify(network="resnet50", output=NetworkOutput.EMBEDDING),
        FilterChain(CHAIN),
        FilterChain(CHAIN, DeviceJpeg(77, Subsampling.S422)),
    ],
)
def test_an_operation_arrives_as_it_left(operation: Operation) -> None:
    packed = msgspec.msgpack.encode(conversion.encode_operation(operation))
    assert conversion.decode_operation(msgspec.msgpack.decode(packed)) == operation


def test_a_trace_arrives_as_it_left() -> None:
    trace = Trace(0.1, 0.2, 0.3, 0.4, 0.5, 5, 8, ReleaseReason.BUDGET, 9.5, "7-1")
    assert conversion.decode_trace(conversion.encode_trace(trace)) == trace


def test_an_error_keeps_its_kind_and_its_text() -> None:
    for kind in (WorkerLost, WeightsMissing, InternalError):
        heard = conversion.decode_error((kind.code, "a text", []))
        assert type(heard) is kind
        assert heard.detail == "a text"
    assert isinstance(conversion.decode_error(("news", "a text", [])), ServiceError)


@pytest.mark.parametrize("piece", [1, 3, 10_000])
def test_frames_arrive_whole_however_the_bytes_are_cut(piece: int) -> None:
    frames: list[wire.ToWorker] = []
    broken: list[Exception] = []
    lost = asyncio.Event()

    async def test() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: FrameProtocol(wire.TO_WORKER, frames.extend, lost.set, broken.append),
            "127.0.0.1",
            0,
        )
        port = server.sockets[0].getsockname()[1]
        _, sender = await loop.create_connection(Pieces, "127.0.0.1", port)
        sender.feed(piece, [SUBMIT, Cancel(8), SUBMIT])
        await asyncio.wait_for(lost.wait(), 10)
        server.close()

    asyncio.run(test())
    assert frames == [SUBMIT, Cancel(8), SUBMIT]
    assert not broken


class Pieces(asyncio.Protocol):
    """Write frames in pieces of this size in bytes, then close the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def feed(self, piece: int, frames: list[wire.Frame]) -> None:
        written = bytearray()
        collector = FrameProtocol(wire.FROM_WORKER, print, print, print)
        collector.connection_made(Tape(written))
        collector.send(frames)
        for start in range(0, len(written), piece):
            self._transport.write(bytes(written[start : start + piece]))
        self._transport.close()


class Tape(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, tape: bytearray) -> None:
        super().__init__()
        self._tape = tape

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._tape += data


def test_a_done_of_a_cancelled_job_carries_nothing() -> None:
    packed = msgspec.msgpack.encode(Done(3))
    assert wire.FROM_WORKER.decode(packed) == Done(3)
    assert len(packed) < 16


def test_the_wrong_fields_of_an_error_cross_as_well() -> None:
    wrong = [FieldError("ops[0].sigma", "too large", 1e9), FieldError("encoder", "none", None)]
    said = Done(1, error=conversion.encode_error(InvalidParameter("wrong", wrong)))
    frame = wire.FROM_WORKER.decode(msgspec.msgpack.encode(said))
    assert isinstance(frame, Done)
    assert frame.error is not None
    heard = conversion.decode_error(frame.error)
    assert isinstance(heard, InvalidParameter)
    assert list(heard.errors) == wrong


def test_what_is_sent_soon_in_one_turn_is_one_write_in_order() -> None:
    written: list[bytes] = []

    class Writes(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))

        def close(self) -> None:
            written.append(b"closed")

    async def test() -> None:
        frames: list[wire.ToWorker] = []
        sender = FrameProtocol(wire.FROM_WORKER, print, print, print)
        sender.connection_made(Writes())
        for frame in (SUBMIT, Cancel(7)):
            sender.send_soon(frame)
        assert not written
        await asyncio.sleep(0)
        sender.send_soon(Cancel(8))
        sender.close()
        await asyncio.sleep(0)
        receiver = FrameProtocol(wire.TO_WORKER, frames.extend, print, print)
        assert written.pop() == b"closed"
        for piece in written:
            receiver.data_received(piece)
        assert frames == [SUBMIT, Cancel(7), Cancel(8)]

    asyncio.run(test())
    assert len(written) == 2
