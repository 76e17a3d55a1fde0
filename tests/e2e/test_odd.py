"""Every odd image through both endpoints: its own clear status, no 500, no hang."""

import functools
import io
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from PIL import Image

from models.codec import ImageFormat
from tests.shared import ODD

FORMATS = [f.name for f in ImageFormat]
MAX_PIXELS = 50_000_000
BYTES = {"Content-Type": "application/octet-stream"}


@functools.cache
def pillow_decodes(file: Path) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(file, formats=FORMATS) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    return False
                picture.load()
        except Exception:  # what Pillow raises on these is anything; each is a "no" here
            return False
    return True


@pytest.mark.parametrize(
    ("path", "every"),
    [
        ("/filter?name=invert&format=png", 1),
        ("/classify?top_k=1", 6),  # both decode alike, and labels take eight times as long
        pytest.param("/classify?top_k=1", 1, marks=pytest.mark.slow),
    ],
)
def test_odd_images_are_answered_if_pillow_decodes_them_and_refused_clearly_if_not(
    client: httpx.Client, path: str, every: int
) -> None:
    if not ODD.is_dir():
        pytest.skip("the odd images of ../shared/data are not here")

    def status(file: Path) -> int:
        return client.post(path, content=file.read_bytes(), headers=BYTES).status_code

    files = sorted(ODD.iterdir())[::every]
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(files, pool.map(status, files), strict=True))
    for file, code in found.items():
        expected = {200} if pillow_decodes(file) else {413, 415, 422}
        assert code in expected, f"{file.name}: {code}"
    assert client.get("/livez").status_code == 200
    assert client.get("/readyz").status_code == 200


def bomb(width: int, height: int) -> bytes:
    """Return a PNG whose pixels are one colour: a few kilobytes for very many pixels."""
    out = io.BytesIO()
    Image.new("L", (width, height)).save(out, "PNG")
    return out.getvalue()


def test_extremes_get_their_own_status(client: httpx.Client) -> None:
    for body, status in (
        *((bomb(width, height), 200) for width, height in ((1, 1), (65500, 1), (1, 65500))),
        (bomb(8000, 8000), 422),
        (bomb(1, 1)[:40], 422),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), 422),
        (b"\xff\xd8\xff" + bytes(1000), 422),
        (b"BM" + bytes(60), 422),
        (bytes(5000), 415),
    ):
        reply = client.post("/filter?name=invert", content=body, headers=BYTES)
        assert reply.status_code == status, reply.content[:300]
