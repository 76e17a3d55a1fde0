"""`POST /info` at a real server: what files contain, by their headers."""

import httpx
from PIL import ExifTags, Image

from tests.pictures import encoded

RAW = {"Content-Type": "application/octet-stream"}


def info(client: httpx.Client, file: bytes, query: str = "") -> dict[str, object]:
    reply = client.post(f"/info{query}", content=file, headers=RAW)
    assert reply.status_code == 200, reply.text
    (record,) = reply.json()["results"]
    assert record["status"] == "ok"
    found: dict[str, object] = record["info"]
    return found


def red(mode: str = "RGB", size: tuple[int, int] = (100, 60)) -> Image.Image:
    return Image.new("RGB", size, (250, 10, 10)).convert(mode)


def test_the_exif_of_a_photo_is_shown_without_place_and_serial_number(
    client: httpx.Client,
) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "Kamera\x07 X"
    exif[ExifTags.Base.Orientation] = 6
    photo = exif.get_ifd(ExifTags.IFD.Exif)
    photo[ExifTags.Base.ExposureTime] = 0.004
    photo[ExifTags.Base.BodySerialNumber] = "12345"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (52.0, 31.0, 12.0)
    found = info(client, encoded(red(), exif=exif.tobytes()))
    assert found["exif"] == {"Make": "Kamera X", "ExposureTime": 0.004}
    assert (found["orientation"], found["width"], found["height"]) == (6, 60, 100)
