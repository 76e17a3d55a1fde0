"""The requests of a measurement."""

import io
from email.parser import BytesParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.bulk.errors import WrongUsage
from app.cli.load.client import Origin
from app.cli.load.messages import COPIES, distinct, photos, requests
from tests.pictures import jpeg, png

ORIGIN = Origin("::1", 80, None, "/base")


def test_drawn_images_differ_in_bytes_but_not_in_pixels() -> None:
    made = distinct([jpeg(), jpeg()])
    assert len({*made}) == len(made) == 2 * COPIES
    first, last = (np.asarray(Image.open(io.BytesIO(each))) for each in (jpeg(), made[-1]))
    assert np.array_equal(first, last)


def test_one_image_is_a_raw_body_with_its_own_type() -> None:
    first, second = requests(ORIGIN, "/classify", [jpeg(), png()], 1, {"X-API-Key": "k"})
    assert first.startswith(b"POST /base/classify HTTP/1.1\r\nHost: [::1]:80\r\nX-API-Key: k\r\n")
    assert b"Content-Type: image/jpeg\r\n" in first
    assert b"Content-Type: image/png\r\n" in second
    assert second.endswith(b"\r\n\r\n" + png())


def test_several_images_are_a_form() -> None:
    (request,) = requests(ORIGIN, "/classify", [jpeg(), png()], 2, {})
    head, _, body = request.partition(b"\r\n\r\n")
    type_ = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Type"))
    form = BytesParser().parsebytes(type_ + b"\r\n\r\n" + body)
    types = [part.get_content_type() for part in form.walk()]
    assert types == ["multipart/form-data", "image/jpeg", "image/png"]
    assert f"Content-Length: {len(body)}".encode() in head


def test_images_of_folders_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.JPG").write_bytes(jpeg())
    (tmp_path / "notes.txt").write_text("no image")
    assert photos([str(tmp_path)]) == [jpeg()]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jpg", b"no image", "a.jpg is no image"),
        (None, b"", "there is no image"),
        ("missing", None, "No such file"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    name: str | None, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / (name or "")
    if name and content is not None:
        path.write_bytes(content)
    with pytest.raises(WrongUsage, match=message):
        photos([str(path)])
