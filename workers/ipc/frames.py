"""The messages between front ends and workers, in MessagePack.

Pixels never travel here, they are in the arena; nothing is pickled. `frame_protocol.py` puts frames
on a socket.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from workers.ipc.encoded_network import EncodedNetwork

Shape = tuple[int, int, int]


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base class of all frames."""


EncodedJpeg = tuple[int, int, int, str]
"""Height, width, orientation and subsampling of a JPEG."""

Times = tuple[float, float, float, float, float, int, int, str, float, str]
"""The fields of a trace, in order."""

EncodedError = tuple[str, str, list[tuple[str, str, Any]]]
"""An error's code and text, and the path, message and value of each wrong field."""


class Submit(Frame, frozen=True):
    """A front end hands over a job and its slot. `deadline` is on the host's monotonic clock.

    The content of the slot has this `shape`; with `jpeg` it is a file, (bytes, 1, 1).
    """

    number: int
    offset: int
    size: int
    shape: Shape
    operation: Any
    deadline: float
    lane: str
    jpeg: EncodedJpeg | None = None
    alone: bool = False
    """True if it must be computed with no other job on the device: a worker died with it."""
    counted: bool = True


class Cancel(Frame, frozen=True):
    """The front end does not wait for this job any more."""

    number: int


class Welcome(Frame, frozen=True):
    """The first frame of a worker: its device, and the networks that it serves, default first.

    `degraded` says why the device is not the one that was asked for. `start` is the seconds that
    the worker's start took, which a successor that is not warm will take too.
    """

    device: str
    networks: list[EncodedNetwork]
    takes_jpegs: bool = False
    degraded: str | None = None
    start: float = 0.0

    @property
    def identity(self) -> object:
        """Return what must not change in a server's life: networks, weights and labels."""
        return [each.identity for each in self.networks]

    def beside(self, workers: "Iterable[Welcome]") -> "Welcome":
        """Return this frame with the reasons of all workers that are degraded."""
        reasons = dict.fromkeys(each.degraded for each in workers if each.degraded)
        return msgspec.structs.replace(self, degraded="; ".join(reasons) or None)


class Done(Frame, frozen=True):
    """A worker hands a job's slot back, with the outcome; of a cancelled job, nothing else.

    The slot holds pixels; with `jpeg` a file, (bytes, 1, 1). `vector` holds the float32 values of
    logits or of an embedding, in the byte order of the host.
    """

    number: int
    trace: Times | None = None
    class_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    shape: Shape | None = None
    error: EncodedError | None = None
    jpeg: EncodedJpeg | None = None
    vector: bytes | None = None


class LoadReport(Frame, frozen=True):
    """How busy a worker is; `progress` grows while its device gets work done."""

    queued_jobs: int
    queued_pixels: int
    running_jobs: int
    service_rate: float
    decoding: float = 0.0
    progress: float = 0.0


class Batched(Frame, frozen=True):
    """A finished micro-batch, reported to one front end for its metrics; filters name no
    network.
    """

    operation: str
    size: int
    reason: str
    network: str = ""
    device: str = ""
    seconds: float = 0.0
    """How long the device was busy with it, without the time that batches before it had."""


class Leaving(Frame, frozen=True):
    """A worker takes no more jobs and has closed its address; it answers those that it has."""


ToWorker = Submit | Cancel
FromWorker = Welcome | Done | LoadReport | Batched | Leaving

ENCODER = msgspec.msgpack.Encoder()
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
