"""Images are read ahead in chunks, and a pipe never holds back the images before it."""

import asyncio
import os
from pathlib import Path

from app.bulk.engines.engine import tasks_of
from app.bulk.engines.reading import IMAGES, Reader
from app.bulk.sources.source import Source
from app.intake.spool import Blob

LIMIT = 1 << 20


def reader(*paths: Path) -> Reader:
    sources = [Source(str(path), path.name) for path in paths]
    return Reader(tasks_of(iter(sources)), LIMIT)


def test_regular_files_come_in_chunks_in_their_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(IMAGES + 1)]
    for path in paths:
        path.write_text(path.name)
    reading = reader(*paths)
    chunks = [reading.chunk(), reading.chunk(), reading.chunk()]
    assert [len(each) for each in chunks] == [IMAGES, 1, 0]
    assert [each.item.source for chunk in chunks for each in chunk] == [str(each) for each in paths]


def test_a_missing_file_is_an_error_in_its_place(tmp_path: Path) -> None:
    (found,) = reader(tmp_path / "missing.jpg").chunk()
    assert not isinstance(found.item.content, Blob)
    assert "cannot read" in str(found.item.content)


def test_a_pipe_is_read_alone_while_the_event_loop_goes_on(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "before").touch()
    (tmp_path / "after").touch()
    reading = reader(tmp_path / "before", pipe, tmp_path / "after")
    assert [each.item.source for each in reading.chunk()] == [str(tmp_path / "before")]

    async def scenario() -> None:
        chunk = asyncio.ensure_future(asyncio.to_thread(reading.chunk))
        with await asyncio.to_thread(pipe.open, "wb") as file:
            for _ in range(100):
                await asyncio.sleep(0)
            assert not chunk.done()
            file.write(b"content")
        (read,) = await chunk
        assert isinstance(read.item.content, Blob)
        assert read.item.content.read() == b"content"

    asyncio.run(scenario())
    assert [each.item.source for each in reading.chunk()] == [str(tmp_path / "after")]
