import asyncio
import io
import zipfile
from collections.abc import AsyncIterator

from app.pipeline.results.encoded_files import EncodedFile
from app.responses.answers import PIECE, stored
from tests.turns import turns_beside

MEMBERS = {"0000.png": bytes(range(256)) * (PIECE // 64), "empty": b"", "results.jsonl": b"{}\n"}


async def members() -> AsyncIterator[tuple[str, EncodedFile]]:
    for name, data in MEMBERS.items():
        yield name, EncodedFile(data)


async def written() -> list[bytes | memoryview]:
    return [chunk async for chunk in stored(members())]


def test_an_archive_has_its_members_whole_and_in_order() -> None:
    chunks = asyncio.run(written())
    with zipfile.ZipFile(io.BytesIO(b"".join(chunks))) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == MEMBERS
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


async def test_no_piece_is_large_and_others_get_their_turn() -> None:
    chunks, turns = await turns_beside(written())
    assert max(map(len, chunks)) == PIECE
    assert turns >= 4
