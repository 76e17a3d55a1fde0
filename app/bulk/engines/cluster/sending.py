"""Turn tasks into chunks for actors: contents that a node cannot read itself travel with them."""

import os
from collections.abc import Iterator

from app.bulk.engines.channel import SentTask
from app.bulk.engines.cluster.messages import Asked, SharedFile, encode
from app.bulk.engines.engine import Task
from app.bulk.engines.reading import BYTES, Reader
from app.bulk.sources import contents
from app.bulk.sources.source import Source
from app.intake.item import Url
from app.intake.spool import Blob


class Sender:
    """Makes chunks of at most `images` tasks, in order; `limit` bounds members of archives.

    Nodes fetch URLs and objects of buckets themselves. With `shared` they also read files, and find
    out by one of each chunk whether they see the files of the command.
    """

    def __init__(self, tasks: Iterator[Task], limit: int, images: int, *, shared: bool) -> None:
        self._tasks, self._limit, self._images, self._shared = tasks, limit, images, shared
        self._reader = Reader(tasks, limit, images=images)

    def chunk(self) -> tuple[list[Task], bytes]:
        """Return the next tasks, none at the end, and the encoded `Asked`. Call it on a thread."""
        if self._shared:
            return self._names()
        reads = self._reader.chunk()
        sent = [
            SentTask.of(each.task, None if isinstance(found := each.item.content, Url) else found)
            for each in reads
        ]
        return [each.task for each in reads], encode(Asked(sent))

    def _names(self) -> tuple[list[Task], bytes]:
        """Return tasks with the contents that only this process can read."""
        tasks: list[Task] = []
        sent: list[SentTask] = []
        size, seen = 0, None
        while len(sent) < self._images and size < BYTES and (task := next(self._tasks, None)):
            content = None
            if task.source.load is not None or contents.may_wait(task.source):
                content = contents.content(task.source, self._limit)
                assert not isinstance(content, Url)
                size += content.size if isinstance(content, Blob) else 0
            elif seen is None:
                seen = _seen(task.source)
            tasks.append(task)
            sent.append(SentTask.of(task, content))
        return tasks, encode(Asked(sent, seen))


def _seen(source: Source) -> SharedFile | None:
    """Return a local file that is there, or None."""
    if contents.is_fetched(source.name):
        return None
    try:
        status = os.stat(source.name)
    except (OSError, ValueError):
        return None
    path = os.fsencode(os.path.abspath(source.name))
    return SharedFile(path, status.st_size, int(status.st_mtime))
