import io

import cv2
import httpx
import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.pictures import drawing, encoded, jpeg, png


def post(client: httpx.Client, template: bytes, *images: bytes, **options: str) -> httpx.Response:
    files = [("files", (f"{n}.png", body)) for n, body in enumerate(images)]
    sent = [*files, ("template", ("template.png", template))]
    return client.post("/match", files=sent, data=options)


def grey(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)).convert("L"), np.float32)


def test_a_template_is_found_in_each_image_of_a_form(client: httpx.Client) -> None:
    template = encoded(drawing().crop((200, 90, 260, 130)), "PNG")
    sent = (jpeg(), encoded(ImageOps.mirror(drawing(mode="RGBA")), "PNG"))
    reply = post(client, template, *sent, png(1, 59, 40), b"broken", k="2", threshold="-1")
    *found, small, broken = reply.json()["results"]
    assert "compute" in reply.headers["Server-Timing"]
    for record, file in zip(found, sent, strict=True):
        scores = cv2.matchTemplate(grey(file), grey(template), cv2.TM_CCOEFF_NORMED)
        _, score, _, place = cv2.minMaxLoc(scores)
        best, second = record["matches"]
        assert (best["x"], best["y"], best["width"], best["height"]) == (*place, 60, 40)
        assert best["score"] == pytest.approx(score, abs=1e-4)
        assert abs(best["x"] - second["x"]) >= 30 or abs(best["y"] - second["y"]) >= 20
    assert (small["error"]["status"], broken["error"]["status"]) == (422, 415)
    assert "60 × 40 pixels and the image 59 × 40" in small["error"]["detail"]


@pytest.mark.parametrize(
    ("template", "options", "reason"),
    [
        (encoded(Image.new("RGB", (9, 9), "red"), "PNG"), {}, "the same luma"),
        (encoded(drawing(600, 500), "PNG")[:99], {}, "at most 262,144"),  # by its header
        (encoded(drawing(600, 500), "AVIF"), {}, "at most 262,144"),
        (png(), {"k": "101"}, "k: Input should be less than or equal to 100"),
        (png(), {"threshold": "nan"}, "threshold: a number in plain digits"),
    ],
)
def test_a_template_or_an_option_that_is_wrong_is_told(
    client: httpx.Client, template: bytes, options: dict[str, str], reason: str
) -> None:
    reply = post(client, template, jpeg(), **options)
    assert reply.status_code in (415, 422)
    assert reason in reply.json()["detail"]
