"""Frames and the domain objects in them arrive as they left, however their bytes are cut."""

import asyncio
from typing import Any

import numpy as np
import pytest

from models.api.schemas import ModelRecord
from models.domain.backend import Load
from models.domain.errors import (
    InternalError,
    InvalidParameter,
    WeightsMissing,
    WorkerLost,
)
from models.domain.image import NetworkInput, Subsampling
from models.domain.job import Labels, Lane, Operation, ReleaseReason, Trace
from models.labels import LabelSet
from models.networks.served import Model, ServedNetwork
from tests.fakes import fake_jpeg
from workers.filters.registry import parse_chain
from workers.ipc import frames as wire
from workers.ipc.arena import ArenaSlot
from workers.ipc.frames import Batched, Cancel, Done, FrameProtocol, LoadReport, Submit, Welcome
from workers.operations import (
    Classify,
    DeviceJpeg,
    FilterChain,
    FunctionToApply,
    NetworkOutput,
)

CHAIN = parse_chain([{"name": "gaussian_blur", "sigma": 2.5}, {"name": "sobel", "axis": "x"}])
HEADER = wire.JpegHeader(30, 20, 6, Subsampling.S420, b"s")
SUBMIT = Submit(7, ArenaSlot(4096, 8192), (3, 2, 3), b"x", 12.5, Lane.BULK, HEADER)
TRACE = Trace(0.1, 0.2, 0.3, 0.4, 0.5, 5, 8, ReleaseReason.BUDGET, 9.5, "7-1")
RECORD = ModelRecord(
    network="resnet18",
    name="fake",
    sha256="0" * 64,
    label_set="fake",
    n_classes=2,
    random=True,
    preprocessing=1,
    precision="fp16",
    device="fake",
)
MODEL = Model(RECORD, LabelSet("fake", ("a", "b"), ("n1", None)))


def test_an_operation_arrives_as_it_left() -> None:
    operations: list[Operation] = [
        Classify(3, FunctionToApply.SIGMOID),
        Classify(network="resnet50", output=NetworkOutput.EMBEDDING),
        Classify(preprocessed=True),
        FilterChain(CHAIN),
        FilterChain(CHAIN, DeviceJpeg(77, Subsampling.S422)),
    ]
    for operation in operations:
        found = wire.decode_operation(wire.encode_operation(operation))
        assert found == operation
        assert found.batch_key == operation.batch_key


def test_a_jpeg_and_the_input_of_a_network_lie_in_slots_as_bytes() -> None:
    jpeg = fake_jpeg(3).image
    lying, header = wire.encode_source(jpeg)
    assert lying.shape == (5000, 1, 1)
    found: Any = wire.decode_source(lying, header)
    assert (found.data == jpeg.data).all()  # type: ignore[union-attr]  # it is no image
    assert wire.encode_source(found)[1] == HEADER
    values = np.random.default_rng(0).normal(0, 1, (3, 5, 7)).astype(np.float32)
    lying, header = wire.encode_source(NetworkInput(values))
    assert header is None
    assert lying.shape == (3, 5, 28)
    assert (lying.view(np.float32) == values).all()


def test_an_error_keeps_its_kind_and_its_text() -> None:
    for kind in [WorkerLost, WeightsMissing, InternalError, InvalidParameter]:
        found = wire.decode_error(wire.encode_error(kind("a text")))
        assert (type(found), found.detail) == (kind, "a text")


class Receiver(FrameProtocol[Any]):
    """Keeps what it receives."""

    def __init__(self, decoder: Any = wire.FROM_WORKER) -> None:
        super().__init__(decoder)
        self.frames: list[Any] = []

    def on_frame(self, frame: Any) -> None:
        self.frames.append(frame)
        if frame == Cancel(99):
            raise KeyError("a fault of ours")

    def on_lost(self) -> None: ...


class Tape(asyncio.Transport):
    """Keeps each piece that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.pieces.append(b"")


def written(*turns: list[wire.Frame]) -> list[bytes]:
    """Return what one end writes that sends these frames in turns of its event loop."""

    async def write() -> list[bytes]:
        sender, tape = Receiver(), Tape()
        sender.connection_made(tape)
        for turn in turns:
            for frame in turn:
                sender.send(frame)
            if turn is not turns[-1]:
                await asyncio.sleep(0)
        sender.close()
        await asyncio.sleep(0)
        return tape.pieces

    return asyncio.run(write())


@pytest.mark.parametrize("piece", [1, 3, 10_000])
def test_frames_arrive_whole_however_the_bytes_are_cut(piece: int) -> None:
    frames: list[wire.Frame] = [SUBMIT, Cancel(8), Cancel(99), SUBMIT]
    sent, receiver = b"".join(written(frames, frames)), Receiver(wire.TO_WORKER)
    for start in range(0, len(sent), piece):
        receiver.data_received(sent[start : start + piece])
    assert receiver.frames == [*frames, *frames]


def test_what_is_sent_in_one_turn_is_one_write_and_closing_writes_the_rest() -> None:
    assert [bool(each) for each in written([SUBMIT, Cancel(7)], [Cancel(8)])] == [True, True, False]


def test_frames_of_a_worker_arrive_as_they_left() -> None:
    networks = (ServedNetwork("resnet18", MODEL), ServedNetwork("resnet50", problem="no weights"))
    load = Load("fake", 1, 3, 4.0, alive=True, takes_jpegs=True)
    frames: list[wire.Frame] = [
        Welcome("fake", networks, "no GPU"),
        LoadReport(load),
        Done(3),
        Done(4, TRACE, Labels((1, 0), (0.5, 0.25))),
        Done(5, TRACE, shape=(5000, 1, 1), jpeg=HEADER),
        Batched("classify", 3, ReleaseReason.FULL, "resnet18", "fake", 0.5),
        wire.Leaving(),
    ]
    receiver = Receiver()
    receiver.data_received(b"".join(written(frames)))
    assert receiver.frames == frames
    assert [each.identity for each in receiver.frames[0].networks] == [
        each.identity for each in networks
    ]
