"""A ZIP of the results of a job, whose images are files."""

import asyncio
import base64
import io
import json
import zipfile

import pytest

from app.jobs.results import Records, results_zip

NAMES = {0: "images/0000.png", 1: "images/cat.png", 2: "images/0002.png"}
"""The names of the members; the first and the last record are of a release that gave none."""

CONTENT = {0: b"first" * 90_000, 1: b"", 2: b"last"}


def record(index: int) -> bytes:
    data = base64.b64encode(CONTENT[index]).decode()
    image = {"media_type": "image/png", "data": data, **({"name": "cat.png"} if index == 1 else {})}
    made = {"index": index, "status": "ok", "image": image}
    return json.dumps(made).encode() + b"\n"


async def read() -> Records:
    for index in CONTENT:
        yield b"\n"  # no record has come for long
        yield record(index)


@pytest.mark.parametrize("images", [True, False])
def test_images_are_files_which_the_records_name(images: bool) -> None:
    async def main() -> bytes:
        pieces = results_zip(read, lambda records: records, images=images)
        return b"".join([bytes(each) async for each in pieces])

    with zipfile.ZipFile(io.BytesIO(asyncio.run(main()))) as archive:
        assert archive.testzip() is None
        records = [json.loads(line) for line in archive.read("results.jsonl").splitlines()]
        files = {each: archive.read(each) for each in archive.namelist()[:-1]}
    assert [each["image"]["name"] for each in records] == [*NAMES.values()]
    named = {NAMES[index]: content for index, content in CONTENT.items()}
    assert files == (named if images else {})
