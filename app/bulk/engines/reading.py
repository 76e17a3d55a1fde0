"""Read the images of tasks ahead, several for each hand-over to a thread."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from app.bulk.engines.engine import Task
from app.bulk.sources import contents
from app.intake.item import Item, Url
from app.intake.spool import Blob
from models.domain.errors import ServiceError
from models.domain.image import Source as Image

Look = Callable[[Item], Image | None]
"""Returns what the device takes as it is of an item, or None."""

IMAGES = 16
"""Most images of a chunk: one hand-over to a thread costs as much as reading several of them."""

BYTES = 8 << 20
"""Bytes after which a chunk ends."""


@dataclass(frozen=True, slots=True)
class Read:
    """A task with its content; `image` is what the device takes as it is, or None."""

    task: Task
    item: Item
    size: int
    image: Image | None = None


def _nothing(_item: Item) -> None:
    """Return None: the device takes nothing as it is."""


class Reader:
    """Reads tasks in chunks of at most `images`, in order.

    `limit` bounds the bytes of a member of an archive.

    Regular files are read together. A pipe is read alone, because another program decides when its
    bytes come, and images before it must not wait for them. `look` is called for each image.
    """

    def __init__(
        self, tasks: Iterator[Task], limit: int, look: Look = _nothing, images: int = IMAGES
    ) -> None:
        self._tasks, self._limit, self._look, self._images = tasks, limit, look, images
        self._held: Task | None = None

    def chunk(self) -> list[Read]:
        """Return the next tasks with their contents; none at the end. Call it on a thread."""
        found: list[Read] = []
        size = 0
        while len(found) < self._images and size < BYTES and (task := self._next()) is not None:
            waits = contents.may_wait(task.source)
            if waits and found:
                self._held = task
                break
            read = self._read(task)
            found.append(read)
            size += read.size
            if waits:
                break
        return found

    def _next(self) -> Task | None:
        held, self._held = self._held, None
        return held or next(self._tasks, None)

    def _read(self, task: Task) -> Read:
        content: Blob | Url | ServiceError = contents.content(task.source, self._limit)
        size = content.size if isinstance(content, Blob) else 0
        item = Item(task.index, content, task.source.name)
        return Read(task, item, size, self._look(item))
