"""How answers are encoded: options of `/filter`, of `/process` and of the command line."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from models.api.schemas import EncodingOptions
from models.codec import Encoding
from tests.pictures import drawing, encoded, jpeg, png
from tests.server import PATIENCE
from workers.filters.registry import FILTERS

INVERT = {"ops": [{"name": "invert"}]}
ORIENTATION, MODEL = 0x0112, 0x0110


def post(client: httpx.Client, query: str, body: bytes, accept: str = "*/*") -> httpx.Response:
    kind = {"Content-Type": "application/octet-stream", "Accept": accept}
    return client.post(f"/filter?name=invert&{query}", content=body, headers=kind)


def opened(body: bytes) -> Image.Image:
    return Image.open(io.BytesIO(body))


def photo() -> bytes:
    """Return an image that lies on its side, with EXIF of a camera."""
    exif = Image.Exif()
    exif[ORIENTATION], exif[MODEL] = 6, "Model X"
    return encoded(drawing(48, 32), exif=exif)


def test_a_progressive_jpeg_with_full_chroma(client: httpx.Client) -> None:
    reply = post(client, "format=jpg&progressive=true&chroma=444&quality=97", png())
    assert reply.headers["Content-Type"] == "image/jpeg"
    image = opened(reply.content)
    assert image.info["progressive"] == 1
    assert isinstance(image, JpegImageFile)
    assert [factors for _, *factors, _ in image.layer] == [[1, 1]] * 3


def test_a_lossless_webp_has_the_exact_pixels(client: httpx.Client) -> None:
    reply = post(client, "format=webp&lossless=1", png())
    found = np.asarray(opened(reply.content))
    assert np.array_equal(found, np.asarray(ImageOps.invert(opened(png()))))


def test_metadata_is_kept_where_asked_and_the_image_upright_anyway(client: httpx.Client) -> None:
    kept, stripped = (
        opened(post(client, f"metadata={word}", photo()).content) for word in ("keep", "strip")
    )
    assert dict(kept.getexif()) == {MODEL: "Model X"}
    assert dict(stripped.getexif()) == {}
    assert kept.size == stripped.size == (32, 48)


@pytest.mark.parametrize(
    ("query", "path", "given"),
    [
        ("format=jpeg&lossless=true", "lossless", True),
        ("format=png&progressive=true", "progressive", True),
        ("format=webp&chroma=444", "chroma", "444"),
        ("format=jpeg&png_level=0", "png_level", 0),
        ("format=png&avif_speed=5", "avif_speed", 5),
        ("format=png&png_level=10", "png_level", "10"),
        ("format=jpeg&chroma=411", "chroma", "411"),
        ("format=jpeg&metadata=some", "metadata", "some"),
        ("format=gif", "format", "gif"),
        ("format=png&encoder=gpu", "encoder", "gpu"),
        ("format=jpeg&encoder=gpu&progressive=true", "encoder", "gpu"),
        ("encoder=gpu", "encoder", "gpu"),
        ("format=jpeg&encoder=gpu", "encoder", "gpu"),  # there is none
        ("progressive=true", "progressive", True),  # the source is a PNG
        ("lossless=perhaps", "lossless", "perhaps"),
    ],
)
def test_what_a_format_has_not_is_422_with_path_reason_and_what_was_given(
    client: httpx.Client, query: str, path: str, given: object
) -> None:
    reply = post(client, query, png())
    assert reply.status_code == 422
    (error,) = reply.json()["errors"]
    assert (error["path"], error["given"]) == (path, given)
    assert path in reply.json()["detail"]
    assert len(error["message"]) > 10


def test_a_version_for_a_gpu_that_is_not_there_fails_alone(client: httpx.Client) -> None:
    versions = [INVERT, INVERT | {"encoder": "gpu"}]
    first, second = process(client, versions=versions, format="jpeg").json()["results"][0][
        "versions"
    ]
    assert (first["status"], second["status"]) == ("ok", "error")
    assert "there is no GPU" in second["error"]["detail"]


def test_an_option_of_the_format_that_accept_chose_is_taken(client: httpx.Client) -> None:
    reply = post(client, "lossless=true", jpeg(), accept="image/webp")
    assert b"VP8L" in reply.content[:64]


def process(client: httpx.Client, **options: object) -> Any:
    images = [{"data": "data:image/png;base64," + base64.b64encode(png()).decode()}]
    return client.post("/process", json={"images": images, "labels": False, **options})


def files_of(reply: httpx.Response) -> list[bytes]:
    versions = reply.json()["results"][0]["versions"]
    return [base64.b64decode(each["image"]["data"]) for each in versions]


def test_versions_take_the_request_s_options_unless_they_have_a_format_of_their_own(
    client: httpx.Client,
) -> None:
    versions = [INVERT, INVERT | {"progressive": False}, INVERT | {"format": "webp"}]
    reply = process(
        client, versions=versions, format="jpeg", progressive=True, chroma=422, quality=50
    )
    assert reply.status_code == 200, reply.text
    first, second, third = files_of(reply)
    assert first == post(client, "format=jpeg&progressive=1&chroma=422&quality=50", png()).content
    assert second == post(client, "format=jpeg&chroma=422&quality=50", png()).content
    assert third == post(client, "format=webp&quality=50", png()).content


def test_a_wrong_option_of_a_version_is_422_with_the_version_s_path(client: httpx.Client) -> None:
    wrong = INVERT | {"format": "jpeg", "lossless": True}
    reply = process(client, versions=[INVERT, wrong])
    assert reply.status_code == 422
    (error,) = reply.json()["errors"]
    assert (error["path"], error["given"]) == ("versions[1].lossless", True)


def test_a_version_whose_format_turns_out_wrong_fails_alone(client: httpx.Client) -> None:
    reply = process(client, versions=[INVERT, INVERT | {"progressive": True}])
    first, second = reply.json()["results"][0]["versions"]
    assert (first["status"], second["status"]) == ("ok", "error")
    assert second["error"]["errors"][0]["path"] == "progressive"


def test_every_option_of_encoding_is_in_the_schema_of_both_routes(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    names = set(Encoding.__dataclass_fields__) | {"format"}
    assert names == EncodingOptions.model_fields.keys()
    for route in ("/filter", "/process"):
        parameters = {each["name"]: each for each in paths[route]["post"]["parameters"]}
        assert names <= parameters.keys()
        assert all(parameters[name]["description"] for name in names)


def test_no_filter_has_a_parameter_that_is_called_as_an_option() -> None:
    taken = {"ops", *EncodingOptions.model_fields}
    for name, filter_ in FILTERS.items():
        assert not taken & filter_.model_fields.keys(), name


@pytest.mark.slow
def test_the_command_line_takes_the_same_options(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jpg", tmp_path / "b.jpg"
    source.write_bytes(photo())
    command = [sys.executable, "-m", "app.cli", "filter", str(source), "-o", str(target)]
    command += ["--ops", json.dumps(INVERT["ops"])]
    good = [*command, "--progressive", "--chroma", "444", "--metadata", "keep"]
    done = subprocess.run(good, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    made = opened(target.read_bytes())
    assert made.info["progressive"] == 1
    assert made.getexif()[MODEL] == "Model X"
    wrong = [*command, "--png-level", "6"]
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith("darkroom: --png-level: an option of PNG")
