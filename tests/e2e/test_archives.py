"""ZIP and TAR as bodies of the image routes of a real server."""

import io
import zipfile

import httpx
import pytest

from tests.pictures import jpeg, png
from tests.unit.app.archives.test_tar_archive import packed as tarred
from tests.unit.app.archives.test_zip_archive import packed as zipped

FILES = {"a.jpg": jpeg(), "folder/b.png": png(), "read.me": b"no image"}
ZIP = {"Content-Type": "application/zip"}


@pytest.mark.parametrize("route", ["/classify?top_k=1", "/info", "/process?labels=true"])
def test_each_member_has_a_record_with_its_name(client: httpx.Client, route: str) -> None:
    reply = client.post(route, content=zipped(FILES), headers=ZIP)
    assert reply.status_code == 200, reply.text
    records = reply.json()["results"]
    assert [(each["source"], each["status"]) for each in records] == [
        ("a.jpg", "ok"),
        ("folder/b.png", "ok"),
        ("read.me", "error"),
    ]
    assert records[2]["error"]["code"] == "unsupported_media"


def test_a_tar_is_filtered_into_a_zip(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/x-tar"}
    reply = client.post("/filter?name=grayscale", content=tarred(FILES.items()), headers=headers)
    assert reply.status_code == 200, reply.text
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        assert sorted(archive.namelist()) == ["a.jpg", "b.png", "results.jsonl"]
