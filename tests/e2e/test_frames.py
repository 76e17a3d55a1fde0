"""`frames=all`: the answer plays the frames as the server filters them one by one."""

import io

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.pictures import drawing, encoded, jpeg

OPS = '[{"name": "gaussian_blur", "sigma": 1.5}, {"name": "resize", "width": 20, "height": 30}]'


def animation(format_: str) -> bytes:
    frames = [drawing(48, 36, seed=number) for number in range(5)]
    more = {"lossless": True} if format_ == "WEBP" else {}
    return encoded(
        frames[0], format_, save_all=True, append_images=frames[1:], duration=70, loop=0, **more
    )


def filtered(client: httpx.Client, data: bytes, **options: str) -> httpx.Response:
    kind = {"content-type": "application/octet-stream"}
    return client.post("/filter", params={"ops": OPS, **options}, content=data, headers=kind)


def shown(data: bytes) -> list[np.ndarray]:
    with Image.open(io.BytesIO(data)) as file:
        found = []
        for number in range(getattr(file, "n_frames", 1)):
            file.seek(number)
            found.append(np.asarray(file.convert("RGB")))
        return found


@pytest.mark.parametrize("source", ["GIF", "PNG", "WEBP"])
def test_frames_are_those_of_images_filtered_one_by_one(client: httpx.Client, source: str) -> None:
    data = animation(source)
    singly = [
        shown(filtered(client, encoded(Image.fromarray(each), "PNG")).content)[0]
        for each in shown(data)
    ]
    for more in ({"format": "png"}, {"format": "webp", "lossless": "true"}):
        answer = filtered(client, data, frames="all", **more)
        assert answer.status_code == 200, answer.text
        np.testing.assert_array_equal(shown(answer.content), singly)
    assert filtered(client, data, frames="all").headers["content-type"] == f"image/{source.lower()}"
    assert len(shown(filtered(client, data).content)) == 1


def test_stills_and_other_formats(client: httpx.Client) -> None:
    assert filtered(client, jpeg(), frames="all").content == filtered(client, jpeg()).content
    for options in ({"format": "jpeg"}, {"frames": "some"}):
        answer = filtered(client, animation("GIF"), **{"frames": "all", **options})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["path"] == "frames"
    assert filtered(client, animation("GIF")[:-400], frames="all").status_code == 422
