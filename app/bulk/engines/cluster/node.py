"""What an actor does on its node: the engine of one process over the chunks that it is given."""

import os
import pickle
from importlib.metadata import PackageNotFoundError, version

from app.bulk.engines import in_process
from app.bulk.engines.cluster.messages import (
    Answered,
    SharedFile,
    Started,
    decode_asked,
    decode_orders,
    encode,
)
from app.bulk.engines.engine import Task
from app.bulk.engines.filtering import Filtering
from app.bulk.engines.in_process import InProcess, Work
from app.bulk.errors import WrongUsage
from app.telemetry import logs
from models.codec import ImageFormat
from models.settings import Settings

LIBRARIES = ("numpy", "opencv-python-headless", "pillow", "simplejpeg", "torch")
"""What pixels and scores depend on, beside Darkroom."""


class Node:
    """An engine in this process, and the filtered images that the command has not got yet."""

    def __init__(self) -> None:
        self._engine: InProcess | None = None
        self._collected = Collected()

    async def begin(self, encoded: bytes) -> bytes:
        """Start the engine by encoded `Orders`; return the encoded `Started`."""
        try:
            return encode(await self._started(encoded))
        except (ValueError, WrongUsage) as error:
            return encode(Started(problem=str(error)))

    async def answer(self, encoded: bytes) -> tuple[str | None, bytes]:
        """Return the encoded answers of an encoded `Asked`, in its order, or a problem."""
        assert self._engine is not None
        asked = decode_asked(encoded)
        sent = asked.tasks
        if asked.shared is not None and (problem := unshared(asked.shared)):
            return problem, b""
        answered: list[Answered] = []
        async for finished in self._engine.answers(each.task() for each in sent):
            for each in finished:
                result = self._collected.pop(sent[len(answered)].index)
                answered.append(Answered(each.line, each.failed, *result))
        return None, encode(answered)

    async def _started(self, encoded: bytes) -> Started:
        orders = decode_orders(encoded)
        settings = Settings.model_validate(orders.settings)
        logs.configure("warning", settings.log_format)
        work: Work = pickle.loads(orders.work)  # noqa: S301 (of our own command)
        if isinstance(work, Filtering):
            work = Filtering(work.version, self._collected, work.timing)
        self._engine = await in_process.start(settings, work)
        identity = self._engine.identity
        return Started(None if identity is None else dict(identity), versions())


class Collected:
    """Destination that keeps filtered images until they are sent to the command."""

    def __init__(self) -> None:
        self._images: dict[int, tuple[str, bytes]] = {}

    def write(self, task: Task, format_: ImageFormat, data: bytes) -> str | None:
        """Keep one result."""
        self._images[task.index] = (format_.value, data)
        return None

    def planned(self, _task: Task) -> str | None:
        """Return None: the command knows the file."""
        return None

    def pop(self, index: int) -> tuple[str | None, bytes | None]:
        """Return the format and the bytes of a result, which is kept no more; None without one."""
        return self._images.pop(index, (None, None))


def unshared(file: SharedFile) -> str | None:
    """Return the problem if this node does not see the same file as the command."""
    name = os.fsdecode(file.path)
    try:
        status = os.stat(name)
    except OSError as error:
        return f"--ray-shared: {name} is not there ({error.strerror})"
    if (status.st_size, int(status.st_mtime)) != (file.size, file.changed):
        return f"--ray-shared: {name} is another file there"
    return None


def versions() -> dict[str, str]:
    """Return the versions of the libraries that pixels and scores depend on."""
    return {name: _version(name) for name in LIBRARIES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
