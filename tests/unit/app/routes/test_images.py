"""Images that count as too many, because each has several parts, and options that are long."""

import json

import pytest

from app.routes.images import LONG, MANY, are_long
from models.settings import Settings
from tests.in_process import client_of, served
from tests.pictures import jpeg


@pytest.mark.parametrize("more", [0, 1])
async def test_each_part_of_an_image_counts_as_an_image(more: int) -> None:
    parts = Settings().max_images_per_request // 2 + more
    versions = json.dumps([{"ops": [{"name": "invert"}]}] * (parts - 1))
    files = [("files", ("a.jpg", jpeg()))] * 2
    async with served() as app, client_of(app) as client:
        reply = await client.post("/process", files=files, data={"versions": versions})
    assert reply.status_code == (413 if more else 200)
    assert ("labels or versions each;" in reply.text) is bool(more)


def test_only_options_that_take_long_are_read_on_the_thread_where_large_bodies_are() -> None:
    text, step = "x" * LONG, {"name": "invert"}
    assert not are_long({"name": text, "ops": [step] * MANY, "versions": [{"ops": text}]})
    for each in (text + "x", [step] * (MANY + 1), [{"ops": text + "x"}]):
        assert are_long({"ops": each})
