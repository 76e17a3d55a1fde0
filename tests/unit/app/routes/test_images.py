"""Images that count as too many, because each has several parts."""

import json

import httpx
import pytest

from models.settings import Settings
from tests.in_process import served
from tests.pictures import jpeg


@pytest.mark.parametrize("more", [0, 1])
async def test_each_part_of_an_image_counts_as_an_image(more: int) -> None:
    parts = Settings().max_images_per_request // 2 + more
    versions = json.dumps([{"ops": [{"name": "invert"}]}] * (parts - 1))
    async with served() as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            files = [("files", ("a.jpg", jpeg()))] * 2
            reply = await client.post("/process", files=files, data={"versions": versions})
    assert reply.status_code == (413 if more else 200)
    assert ("labels or versions each count as" in reply.text) is bool(more)
