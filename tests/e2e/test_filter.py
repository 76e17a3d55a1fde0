import base64
import io
import json
import zipfile

import httpx
import numpy as np
from PIL import Image, ImageOps

from app.responses.thumbnails import GAP, HEIGHT, WIDTH
from tests.pictures import drawing, encoded, png
from workers.filters.registry import parse_chain


def opened(body: bytes) -> Image.Image:
    return Image.open(io.BytesIO(body))


def post(client: httpx.Client, query: str, body: bytes, **headers: str) -> httpx.Response:
    kind = {"Content-Type": "application/octet-stream", "Accept": "*/*"}
    return client.post(f"/filter?{query}", content=body, headers=kind | headers)


def test_one_image_in_is_one_image_out_with_the_exact_pixels(client: httpx.Client) -> None:
    picture = drawing()
    reply = post(client, "name=invert", encoded(picture, "PNG"))
    assert reply.status_code == 200
    assert reply.headers["Content-Type"] == "image/png"
    assert reply.headers["X-Filter-Spec"] == "1"
    assert reply.headers["Vary"] == "Accept"
    assert "encode;dur=" in reply.headers["Server-Timing"]
    assert np.array_equal(np.asarray(opened(reply.content)), np.asarray(ImageOps.invert(picture)))


def test_an_overlay_comes_with_the_form_or_with_a_preset(client: httpx.Client) -> None:
    sent = [*files(png(1)), ("overlay", ("logo.png", png(5)))]
    made = client.post("/filter", files=sent, data={"name": "overlay", "x": "2"})
    assert made.status_code == 200, made.text
    assert post(client, "preset=marked", png(1)).content == made.content
    assert client.get("/filters").json()["presets"]["marked"]["ops"][0]["file"] == "logo.png"
    for refused in (
        client.post("/filter", files=sent, data={"name": "sepia"}),
        *(post(client, f"name=overlay{more}", png(1)) for more in ("", "&overlay=x")),
        client.post("/filter", files=[sent[0], ("overlay", b"x")], data={"name": "overlay"}),
    ):
        assert refused.status_code in (415, 422), refused.text


def test_a_file_of_at_most_so_many_bytes_states_its_quality(client: httpx.Client) -> None:
    whole = post(client, "name=invert&format=jpeg", png())
    most = len(whole.content) - 50
    reply = post(client, f"name=invert&format=jpeg&max_bytes={most}", png())
    chosen = post(client, f"name=invert&format=jpeg&quality={reply.headers['X-Quality']}", png())
    assert (chosen.content, "X-Quality" in whole.headers) == (reply.content, False)
    assert len(reply.content) <= most
    refused = post(client, "name=invert&format=webp&max_bytes=9", png())
    assert (refused.status_code, refused.json()["code"]) == (422, "unprocessable")


def files(*bodies: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", (f"{n}.png", body)) for n, body in enumerate(bodies)]


def test_several_images_come_back_as_a_zip_with_every_record(client: httpx.Client) -> None:
    reply = client.post("/filter", files=files(png(1), b"broken", png(2)), data={"name": "invert"})
    assert reply.headers["Content-Type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(reply.content))
    assert archive.testzip() is None
    records = [json.loads(line) for line in archive.read("results.jsonl").splitlines()]
    assert [r["status"] for r in records] == ["ok", "error", "ok"]
    for record, body in zip(records, (png(1), b"", png(2)), strict=True):
        if record["status"] == "ok":
            inverted = ImageOps.invert(opened(body))
            found = opened(archive.read(record["image"]["name"]))
            assert found.tobytes() == inverted.tobytes()


def test_a_preset_is_its_chain_in_forms_queries_json_and_versions(client: httpx.Client) -> None:
    small, sent = client.get("/filters").json()["presets"]["small"], files(png())[:1]
    chain = {"ops": json.dumps(small["ops"]), "format": "png"}
    expected = client.post("/filter", files=sent, data=chain).content
    assert client.post("/filter", files=sent, data={"preset": "small"}).content == expected
    assert post(client, "preset=small", png(), Accept="image/webp").content == expected
    data = base64.b64encode(png()).decode()
    body: dict[str, object] = {"images": [{"data": f"data:,{data}".replace(",", ";base64,", 1)}]}
    assert client.post("/filter", json=body | {"preset": "small"}).content == expected
    body |= {"labels": False, "versions": [{"preset": "small"}]}
    (record,) = client.post("/process", json=body).json()["results"]
    assert base64.b64decode(record["versions"][0]["image"]["data"]) == expected
    refused = post(client, "preset=smal", png())
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "preset")
    assert "did you mean 'small'? there are: small" in refused.json()["detail"]


def test_filters_that_measure_pixels_stand_anywhere_in_a_chain(client: httpx.Client) -> None:
    picture = ImageOps.expand(drawing(90, 60), (20, 10, 5, 30), "white")
    smart = {"name": "resize", "width": 40, "height": 40, "fit": "cover", "gravity": "smart"}
    versions: list[dict[str, object]] = []
    expected = []
    invert, trim = {"name": "invert"}, {"name": "trim"}
    for ops in ([trim], [invert, trim, smart, smart], [trim, invert, smart]):
        pixels = np.asarray(picture)
        for each in parse_chain(ops):
            pixels = each.apply(pixels)
        expected.append(pixels)
        versions.append({"ops": ops, "format": "png"})
        reply = post(client, f"ops={json.dumps(ops)}", encoded(picture, "PNG"))
        assert np.array_equal(np.asarray(opened(reply.content)), pixels)
        assert "compute;dur=" in reply.headers["Server-Timing"]
    sent = {"labels": "false", "versions": json.dumps(versions)}
    reply = client.post("/process", files=files(encoded(picture, "PNG")), data=sent)
    for made, pixels in zip(reply.json()["results"][0]["versions"], expected, strict=True):
        found = opened(base64.b64decode(made["image"]["data"]))
        assert np.array_equal(np.asarray(found), pixels)


def test_a_trimmed_image_cannot_grow_beyond_the_memory_it_holds(client: httpx.Client) -> None:
    line = Image.new("RGB", (2000, 2000))
    line.paste("white", (7, 0, 8, 2000))
    small = {"name": "resize", "width": 9, "height": 9}
    smart = [small | {"fit": "fill"}, small | {"fit": "cover", "gravity": "smart"}]
    for width, status in ((1, 200), (100, 422), (60_000, 422)):
        for more in ([], smart):
            ops = json.dumps([{"name": "trim"}, {"name": "resize", "width": width}, *more])
            reply = post(client, f"ops={ops}", encoded(line, "PNG"))
            assert reply.status_code == status, reply.text


def thumbnail(client: httpx.Client, name: str) -> Image.Image:
    reply = client.get(f"/filters/{name}/thumbnail")
    assert reply.status_code == 200
    assert reply.headers["Content-Type"] == "image/png"
    assert reply.headers["Cache-Control"] == "max-age=3600"
    return opened(reply.content)


def test_the_catalogue_shows_every_filter_with_schema_example_and_thumbnail(
    client: httpx.Client,
) -> None:
    listed = client.get("/filters").json()["filters"]
    assert {f["name"] for f in listed} >= {"gaussian_blur", "median", "sobel"}
    for each in listed:
        assert client.get(f"/filters/{each['name']}").json() == each
        sent = files(png()) + [("overlay", ("o.png", png()))] * (each["name"] == "overlay")
        example = {"ops": json.dumps([each["example"]])}
        assert client.post("/filter", files=sent, data=example).status_code == 200
        image = opened(client.get(each["thumbnail"]).content)
        assert image.width > WIDTH + GAP
        assert image.height >= HEIGHT
    assert client.get("/filters/nope").status_code == 404
