"""Take the pictures of the page in `docs/page/`: `python -m tools.page_pictures`.

It starts a server with the bundled network, gives the page pictures that the tests draw, and saves
what Chromium shows as WebP. Chromium is needed.
"""

import io
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import expect

from tests.browser import WITHIN, add_filter, chromium, opened
from tests.drawn_classes import DRAWN
from tests.pictures import encoded
from tests.server import serving

FOLDER = Path(__file__).parents[1] / "docs" / "page"

DESKTOP = {"width": 1366, "height": 768}
PHONE = {"width": 390, "height": 844}

POINTS = 16
"""Points of the curve of the live view, two seconds apart."""

SHOTS = {
    "try-light": (DESKTOP, "light", "try"),
    "try-dark": (DESKTOP, "dark", "try"),
    "filters-light": (DESKTOP, "light", "filters"),
    "live-dark": (DESKTOP, "dark", "live"),
    "reference-light": (DESKTOP, "light", "docs"),
    "phone-light": (PHONE, "light", "try"),
    "phone-dark": (PHONE, "dark", "filters"),
}
"""The pictures by name: the size of the window, the scheme of colours, and the view."""


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    flags = ("--weights", "bundled", "--log-level", "error")
    with serving(*flags) as server, chromium() as browser:
        for name, (size, scheme, view) in SHOTS.items():
            url = f"http://127.0.0.1:{server.port}/"
            with opened(browser, url, viewport=size, color_scheme=scheme) as page:
                picture = _shot(page, view)
            image = Image.open(io.BytesIO(picture)).convert("RGB")
            image.save(FOLDER / f"{name}.webp", quality=80, method=6)


def _shot(page: Any, view: str) -> bytes:
    """Fill the page with images and a chain, and return a PNG of a view."""
    page.set_input_files("#files", [_file(label, draw()) for label, draw in DRAWN.items()])
    expect(page.locator("#summary")).to_contain_text("5 of 5", timeout=WITHIN)
    for name in ("sepia", "vignette"):
        add_filter(page, name)
    page.locator("#stage.compared").wait_for()
    expect(page.locator("#facts")).to_contain_text("JPEG", timeout=WITHIN)
    page.locator(f"#to-{view}").click()
    if view == "live":
        _work(page)
    if view == "filters":
        page.locator("#gallery-list img[src^='blob:']").last.wait_for(state="attached")
        page.locator("#gallery-list img:not([src^='blob:'])").first.wait_for(state="detached")
    page.locator("html").evaluate("root => root.ownerDocument.defaultView.scrollTo(0, 0)")
    picture: bytes = page.screenshot(animations="disabled")
    return picture


def _work(page: Any) -> None:
    """Send requests until the curve of the live view has some points."""
    url, bodies = page.url.partition("#")[0], [encoded(draw()) for draw in DRAWN.values()]
    headers = {"Content-Type": "application/octet-stream"}
    points = page.locator("#live-curve polyline")
    with httpx.Client(base_url=url, timeout=WITHIN / 1000) as client, ThreadPoolExecutor(4) as pool:
        post = partial(client.post, headers=headers)
        for number in count():
            drawn = points.get_attribute("points") if points.count() else None
            if drawn and len(drawn.split()) >= POINTS:
                return
            path = ("/classify", "/filter?name=gaussian_blur")[number % 3 == 0]
            sent = [pool.submit(post, path, content=body) for body in bodies * (1 + number % 4)]
            for each in sent:
                each.result()


def _file(label: str, image: Image.Image) -> dict[str, Any]:
    name = f"{label.replace(' ', '_')}.jpg"
    return {"name": name, "mimeType": "image/jpeg", "buffer": encoded(image, quality=92)}


if __name__ == "__main__":
    main()
