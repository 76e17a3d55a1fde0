import io
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
from PIL import Image

from app.responses.thumbnails import GAP, HEIGHT, WIDTH, scene
from tests.pictures import encoded


def thumbnail(client: httpx.Client, name: str) -> Image.Image:
    reply = client.get(f"/filters/{name}/thumbnail")
    assert reply.status_code == 200
    assert reply.headers["Content-Type"] == "image/png"
    assert reply.headers["Cache-Control"] == "max-age=3600"
    return Image.open(io.BytesIO(reply.content))


def test_a_thumbnail_is_the_scene_and_what_the_filter_makes_of_it(client: httpx.Client) -> None:
    for name in ["invert", "grayscale", "sobel"]:
        described = client.get(f"/filters/{name}").json()
        both = np.asarray(thumbnail(client, name).convert("RGB"))
        assert np.array_equal(both[:, :WIDTH], scene().pixels)
        reply = client.post(
            "/filter",
            params={"ops": json.dumps([described["example"]])},
            content=encoded(Image.fromarray(scene().pixels), "PNG"),
            headers={"Content-Type": "image/png"},
        )
        after = np.asarray(Image.open(io.BytesIO(reply.content)).convert("RGB"))
        assert np.array_equal(both[:, WIDTH + GAP :], after)


def test_every_filter_links_its_thumbnail(client: httpx.Client) -> None:
    links = [each["thumbnail"] for each in client.get("/filters").json()["filters"]]
    with ThreadPoolExecutor(4) as pool:
        pictures = list(pool.map(client.get, links))
    for picture in pictures:
        assert picture.status_code == 200
        with Image.open(io.BytesIO(picture.content)) as image:
            assert image.width > WIDTH + GAP
            assert image.height >= HEIGHT
