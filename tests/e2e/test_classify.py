"""Labels and descriptions of images, sent in each way."""

import base64

import httpx
import numpy as np
import pytest
from PIL import ExifTags, Image

from tests.pictures import encoded, jpeg, png

JPEG = {"Content-Type": "image/jpeg"}


def top(client: httpx.Client, body: bytes) -> dict[str, object]:
    reply = client.post("/classify", content=body, headers=JPEG)
    assert reply.status_code == 200, reply.text
    best: dict[str, object] = reply.json()["results"][0]["predictions"][0]
    return best


def test_a_raw_image_is_answered_with_labels_model_and_timing(client: httpx.Client) -> None:
    reply = client.post("/classify?top_k=3", content=jpeg(), headers=JPEG)
    assert reply.status_code == 200
    body = reply.json()
    assert body["summary"] == {"total": 1, "succeeded": 1, "failed": 0}
    assert body["model"]["name"] == "random"
    assert body["model"]["random"] is True
    (record,) = body["results"]
    assert [set(p) for p in record["predictions"]] == [{"label", "wnid", "class_id", "score"}] * 3
    scores = [p["score"] for p in record["predictions"]]
    assert scores == sorted(scores, reverse=True)
    for stage in ("intake", "decode", "queue", "upload", "compute", "download"):
        assert f"{stage};dur=" in reply.headers["Server-Timing"]
    assert 'batch;desc="1/8 ' in reply.headers["Server-Timing"]


def test_uploads_data_uris_and_ids_keep_their_order_and_names(client: httpx.Client) -> None:
    data = "data:image/png;base64," + base64.b64encode(png()).decode()
    reply = client.post("/classify", json={"images": [{"id": "a", "data": data}] * 2, "top_k": 1})
    assert [r["id"] for r in reply.json()["results"]] == ["a", "a"]
    files = [("files", (f"{n}.jpg", jpeg(n), "image/jpeg")) for n in range(3)]
    reply = client.post("/classify", files=files, data={"top_k": "2"})
    results = reply.json()["results"]
    assert [r["source"] for r in results] == ["0.jpg", "1.jpg", "2.jpg"]
    assert [r["index"] for r in results] == [0, 1, 2]
    assert all(len(r["predictions"]) == 2 for r in results)


def test_one_bad_image_among_many_fails_alone(client: httpx.Client) -> None:
    good = [top(client, jpeg(n)) for n in range(3)]
    bodies = [jpeg(0), b"", jpeg(1), b"not an image", jpeg(5)[:900], jpeg(2)]
    files = [("files", (f"{n}", body)) for n, body in enumerate(bodies)]
    results = client.post("/classify", files=files).json()["results"]
    assert [r["status"] for r in results] == ["ok", "error", "ok", "error", "error", "ok"]
    assert [r["error"]["status"] for r in results if r["status"] == "error"] == [415, 415, 422]
    answered = [r["predictions"][0]["class_id"] for r in results if r["status"] == "ok"]
    assert answered == [g["class_id"] for g in good]


def test_a_single_bad_image_answers_with_its_own_problem(client: httpx.Client) -> None:
    for body, status, code in [
        (b"", 415, "unsupported_media"),
        (b"GIF89a", 422, "undecodable"),
        (jpeg()[:500], 422, "undecodable"),
        (b"<svg/>", 415, "unsupported_media"),
    ]:
        reply = client.post("/classify", content=body, headers=JPEG | {"X-Request-ID": "me-1"})
        assert reply.status_code == status
        assert reply.headers["Content-Type"] == "application/problem+json"
        problem = reply.json()
        assert (problem["status"], problem["code"], problem["request_id"]) == (status, code, "me-1")
        assert problem["type"] == f"urn:darkroom:problem:{code}"
        assert problem["detail"]


def test_scores_are_what_the_asked_function_gives(client: httpx.Client) -> None:
    logits, odds, shares = (
        np.array([each["score"] for each in reply.json()["results"][0]["predictions"]])
        for function in ("none", "sigmoid", "softmax")
        for query in [f"/classify?top_k=1000&function_to_apply={function}"]
        for reply in [client.post(query, content=jpeg(), headers=JPEG)]
    )
    assert odds == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-4)
    assert shares == pytest.approx(np.exp(logits) / np.exp(logits).sum(), abs=1e-4)


def test_an_option_that_is_given_twice_is_422(client: httpx.Client) -> None:
    for query in ["", "?top_k=1"]:
        fields = [("top_k", (None, each)) for each in ("2", "3")][bool(query) :]
        files: list[tuple[str, tuple[str | None, bytes | str]]]
        files = [("files", ("a.jpg", jpeg())), *fields]
        reply = client.post(f"/classify{query}", files=files)
        assert (reply.status_code, reply.json()["detail"]) == (422, "top_k: given more than once")


def test_the_exif_of_a_photo_is_shown_without_place_and_serial_number(client: httpx.Client) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "Kamera\x07 X"
    exif[ExifTags.Base.Orientation] = 6
    photo = exif.get_ifd(ExifTags.IFD.Exif)
    photo[ExifTags.Base.ExposureTime] = 0.004
    photo[ExifTags.Base.BodySerialNumber] = "12345"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (52.0, 31.0, 12.0)
    file = encoded(Image.new("RGB", (100, 60), (250, 10, 10)), exif=exif.tobytes())
    (record,) = client.post("/info", content=file, headers=JPEG).json()["results"]
    found = record["info"]
    assert found["exif"] == {"Make": "Kamera X", "ExposureTime": 0.004}
    assert (found["orientation"], found["width"], found["height"]) == (6, 60, 100)
    reply = client.post("/info?appearance=true", content=file, headers=JPEG)
    seen = reply.json()["results"][0]["info"]
    assert seen["colours"] == [{"colour": found.pop("colour"), "share": 1.0}]
    assert {*seen} - {*found} == {"phash", "blurhash", "colours"}
