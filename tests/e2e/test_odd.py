"""Every odd image through both endpoints: its own clear status, no 500, no hang."""

import functools
import io
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from models.codec import ImageFormat
from tests.pictures import drawing, encoded
from tests.shared import ODD

BATCH = 16
"""Images in one request of the server of all tests, at most."""

FORMATS = [f.name for f in ImageFormat]
MAX_PIXELS = 50_000_000
BYTES = {"Content-Type": "application/octet-stream"}

SMALL: dict[str, dict[str, Any]] = {
    "jpeg": {"format_": "JPEG", "quality": 60},
    "progressive": {"format_": "JPEG", "quality": 40, "progressive": True},
    "png": {"format_": "PNG"},
    "webp": {"format_": "WEBP", "quality": 60},
    "tiff": {"format_": "TIFF", "compression": "tiff_lzw"},
}
"""Files of some hundred bytes each."""


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


@pytest.mark.parametrize("path", ["/classify?top_k=1", "/filter?name=invert&format=png"])
def test_odd_images_are_answered_if_pillow_decodes_them_and_refused_clearly_if_not(
    client: httpx.Client, path: str
) -> None:
    if not ODD.is_dir():
        pytest.skip("the odd images of ../shared/data are not here")
    kind = {"Content-Type": "application/octet-stream"}

    def status(file: Path) -> int:
        return client.post(path, content=file.read_bytes(), headers=kind).status_code

    files = sorted(ODD.iterdir())
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(files, pool.map(status, files), strict=True))
    for file, code in found.items():
        expected = {200} if pillow_decodes(file) else {413, 415, 422}
        assert code in expected, f"{file.name}: {code}"
    assert client.get("/livez").status_code == 200
    assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("name", SMALL)
def test_a_file_cut_anywhere_is_decoded_or_refused_as_its_own_item(
    client: httpx.Client, name: str
) -> None:
    whole = encoded(drawing(24, 16), **SMALL[name])
    cuts = [whole[:length] for length in range(len(whole) + 1)]
    batches = [cuts[start : start + BATCH] for start in range(0, len(cuts), BATCH)]

    def ask(batch: list[bytes]) -> list[tuple[str, int]]:
        files = [("files", (str(len(each)), each)) for each in batch]
        accept = {"Accept": "application/x-ndjson"}
        reply = client.post("/info", files=files, headers=accept)
        if len(batch) == 1 and reply.status_code != 200:
            return [(files[0][1][0], reply.status_code)]
        assert reply.status_code == 200, reply.text
        records = [json.loads(line) for line in reply.text.splitlines()]
        return [(r["source"], r["error"]["status"] if "error" in r else 200) for r in records]

    with ThreadPoolExecutor(4) as pool:
        found = dict(pair for answers in pool.map(ask, batches) for pair in answers)
    assert len(found) == len(cuts)
    assert set(found.values()) <= {200, 415, 422}, found
    assert found["0"] == 415
    assert found[str(len(whole))] == 200
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


def test_a_file_over_the_size_limit_is_413_and_its_neighbours_are_answered(
    client: httpx.Client,
) -> None:
    big = bytes((32 << 20) + 1)
    reply = client.post("/classify", content=big, headers={"Content-Type": "image/jpeg"})
    assert reply.status_code == 413
    files = [("files", ("big", big)), ("files", ("small", bomb(9, 9)))]
    results = client.post("/classify", files=files).json()["results"]
    assert [r["status"] for r in results] == ["error", "ok"]
    assert results[0]["error"]["status"] == 413
