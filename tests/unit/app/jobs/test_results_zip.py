"""A ZIP of results that are long in coming: bytes are sent meanwhile, and it stays a good ZIP."""

import asyncio
import base64
import io
import json
import shutil
import subprocess
import zipfile
from contextlib import aclosing
from pathlib import Path

import pytest

from app.archives.reading import open_archive
from app.jobs.results import Records, ResultsZip

EMPTY = b"\x00\x00\x00\xff\xff"
"""A block of Deflate that stores no byte."""

NAMES = {0: "images/0000.png", 1: "images/cat.png", 2: "images/0002.png"}
"""The names of the members; the first and the last record are of a release that gave none."""

CONTENT = {0: b"first" * 30_000, 1: b"", 2: b"last"}


def record(index: int) -> bytes:
    data = base64.b64encode(CONTENT[index]).decode()
    image = {"media_type": "image/png", "data": data, **({"name": "cat.png"} if index == 1 else {})}
    made = {"index": index, "status": "ok", "image": image}
    return json.dumps(made).encode() + b"\n"


async def sent(*, images: bool, padded: bool) -> tuple[bytes, list[bool]]:
    """Return a ZIP, and whether bytes without content came before each of the three records."""
    goes_on, told = [asyncio.Event() for _ in CONTENT], [False for _ in CONTENT]
    first = True

    async def read() -> Records:
        nonlocal first
        waits, first = first and padded, False
        for index, each in enumerate(goes_on):
            while waits and not each.is_set():
                yield b"\n"
                await asyncio.sleep(0.001)
            yield record(index)

    found: list[bytes] = []
    async with aclosing(ResultsZip(read, images=images, padded=padded).pieces()) as pieces:
        async for piece in pieces:
            found.append(bytes(piece))
            waiting = [index for index, each in enumerate(goes_on) if not each.is_set()]
            if piece == EMPTY and waiting:
                told[waiting[0]] = True
                goes_on[waiting[0]].set()
    return b"".join(found), told


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("padded", [False, True])
def test_silence_is_filled_and_the_archive_is_valid(
    tmp_path: Path, images: bool, padded: bool
) -> None:
    async def main() -> tuple[bytes, list[bool]]:
        return await asyncio.wait_for(sent(images=images, padded=padded), 30)

    found, told = asyncio.run(main())
    assert told == [padded] * len(CONTENT)
    (tmp_path / "made.zip").write_bytes(found)
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        assert archive.testzip() is None
        records = [json.loads(line) for line in archive.read("results.jsonl").splitlines()]
        files = {each: archive.read(each) for each in archive.namelist() if each in NAMES.values()}
    assert [each["index"] for each in records] == [*CONTENT]
    named = {NAMES[index]: content for index, content in CONTENT.items()}
    assert files == (named if images else {})
    with open_archive(tmp_path / "made.zip") as own:
        assert {each.name: own.read(each, 1 << 20) for each in own.members()}.items() >= (
            files.items()
        )
    if (unzip := shutil.which("unzip")) is not None:
        subprocess.run([unzip, "-tq", tmp_path / "made.zip"], check=True)
