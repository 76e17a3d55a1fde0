"""Write a ZIP while it is sent; checksums are computed in pieces, between other work."""

import asyncio
from collections.abc import AsyncIterator

from app.archives.zip_writer import ZipWriter
from app.pipeline.results.encoded_files import EncodedFile
from app.responses.body import Body, pieces_of
from app.responses.records import file_name, line
from app.responses.rendering import Answers, Rendering


async def stored(members: AsyncIterator[tuple[str, EncodedFile]]) -> Body:
    """Yield an uncompressed ZIP of members (name and content) in the order of their arrival."""
    with ZipWriter() as archive:
        async for name, content in members:
            yield archive.begin(name, content.size)
            for piece in pieces_of(content):
                archive.add(piece)
                yield piece
                await asyncio.sleep(0)
            yield archive.end()
        for piece in archive.finish():
            yield piece


async def members(answers: Answers, rendering: Rendering) -> AsyncIterator[tuple[str, EncodedFile]]:
    """Yield the images as they finish, by name; last `results.jsonl` with every record."""
    lines: dict[int, bytes] = {}
    async for each in answers:
        name = rendering.names[each.item.index]
        lines[each.item.index] = line(rendering.record(each, name=name))
        for version, file in each.images:
            yield file_name(name, file, version), file.file
    yield "results.jsonl", EncodedFile(b"".join(lines[n] for n in sorted(lines)))
