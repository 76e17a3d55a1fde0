"""Make the README's strip of pictures, docs/pictures/strip.webp: `python -m tools.strip_picture`.

It starts a server with the bundled network and sends it the photograph of `strip_scene.py`. Labels
and scores are the answer of /classify, and the three pictures beside them are answers of /filter.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageDraw, ImageFont

from tests.pictures import encoded
from tests.server import serving
from tools.strip_scene import photograph

STRIP = Path(__file__).parents[1] / "docs" / "pictures" / "strip.webp"

FILTERS: Mapping[str, Mapping[str, object]] = {
    "sobel": {},
    "sepia": {},
    "pixelate": {"size": 12},
}
"""The three filters with their parameters."""

TILE = (360, 270)
"""Width and height of one picture of the strip, in pixels."""

CAPTION, GAP = 46, 12
"""Height of a line below a picture, and distance between pictures, in pixels."""

TOP = 4
"""Labels that are shown."""

TEXT = 27
"""Height of letters, in pixels: a page shows the strip at half of its size."""

INK, PALE, BAR = (27, 31, 36), (222, 227, 233), (11, 92, 173)


def main() -> None:
    """Ask a server, and write the strip."""
    STRIP.parent.mkdir(exist_ok=True)
    with (
        serving("--weights", "bundled", "--log-level", "error") as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client,
    ):
        strip(tiles(client)).save(STRIP, quality=86, method=6)


def tiles(client: httpx.Client) -> Mapping[str, Image.Image]:
    """Return the pictures of the strip by their captions: what the client's server answers."""
    photo = encoded(photograph(), quality=92)
    records = _asked(client, "/classify", photo, top_k=TOP).json()["results"]
    shown = {
        "photo": Image.open(io.BytesIO(photo)),
        "labels": labels(records[0]["predictions"]),
    }
    for name, options in FILTERS.items():
        answer = _asked(client, "/filter", photo, name=name, **options).content
        shown[name] = Image.open(io.BytesIO(answer))
    return shown


def strip(tiles: Mapping[str, Image.Image]) -> Image.Image:
    """Return pictures side by side, each scaled to a tile, with their captions below, RGB."""
    width, height = TILE
    size = (len(tiles) * (width + GAP) - GAP, height + CAPTION)
    whole = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(whole)
    for number, (caption, tile) in enumerate(tiles.items()):
        left = number * (width + GAP)
        whole.paste(tile.convert("RGB").resize(TILE, Image.Resampling.LANCZOS), (left, 0))
        middle = (left + width // 2, height + CAPTION // 2)
        draw.text(middle, caption, fill=INK, font=ImageFont.load_default(TEXT), anchor="mm")
    return whole


def labels(predictions: Sequence[Mapping[str, Any]]) -> Image.Image:
    """Return a tile of labels, each with a bar as long as its score."""
    width, height = TILE
    tile = Image.new("RGB", TILE, (246, 248, 250))
    draw = ImageDraw.Draw(tile)
    step, left, right = height // len(predictions), 22, width - 22
    font = ImageFont.load_default(TEXT)
    for number, each in enumerate(predictions):
        top = number * step + 10
        draw.text((left, top), each["label"], fill=INK, font=font)
        draw.text((right, top), f"{each['score']:.1%}", fill=INK, font=font, anchor="ra")
        bar = (left, top + 36, right, top + 48)
        draw.rounded_rectangle(bar, 6, fill=PALE)
        end = left + max(12, round((right - left) * each["score"]))
        draw.rounded_rectangle((left, bar[1], end, bar[3]), 6, fill=BAR)
    return tile


def _asked(client: httpx.Client, path: str, photo: bytes, **options: object) -> httpx.Response:
    """Return the answer for one image; an error of the server is an `httpx.HTTPStatusError`."""
    query = {name: str(value) for name, value in options.items()}
    headers = {"Content-Type": "image/jpeg"}
    return client.post(path, params=query, content=photo, headers=headers).raise_for_status()


if __name__ == "__main__":
    main()
