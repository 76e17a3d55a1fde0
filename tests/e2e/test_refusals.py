"""Wrong options of all routes of images: each is 422 with its path, and says what is allowed."""

import json
from urllib.parse import quote

import httpx

from tests.pictures import png

GREY = {"ops": [{"name": "grayscale"}], "format": "png"}
INVERT = {"ops": [{"name": "invert"}]}


def process(versions: object) -> str:
    text = versions if isinstance(versions, str) else json.dumps(versions)
    return f"/process?versions={quote(text)}"


LABELS = [
    ("top_k=0", "top_k"),
    ("top_k=1001", "top_k"),
    ("top_k=many", "top_k"),
    ("topk=3", "topk"),
    ("function_to_apply=relu", "function_to_apply"),
    ("output=logits&top_k=3", "top_k"),
    ("output=embedding&function_to_apply=none", "function_to_apply"),
    ("output=features", "output"),
    ("vector_format=base64", "vector_format"),
    ("model=resnet51", "model"),
]
FILTERS = [
    ("name=gaussian_blur&sigma=0", "sigma"),
    ("name=gaussian_blur&sigma=nan", "sigma"),
    ("name=gaussian_blur&radius=3", "radius"),
    ("name=sharpenn", "name"),
    ('ops=[{"name":"invert"},{"name":"median","size":4}]', "ops[1].size"),
    ("ops=[]", "ops"),
    ("ops=nonsense", "ops"),
    ("", "ops"),
    ("name=invert&ops=[]", "ops"),
    ('ops=[{"name":"invert"}]&sigma=2', "sigma"),
]
VERSIONS = [
    ([GREY, {"ops": [{"name": "gaussian_blur", "sigma": 0}]}], "versions[1].ops[0].sigma"),
    ([{"ops": [{"name": "invert"}, {"name": "nope"}]}], "versions[0].ops[1].name"),
    ([{"name": "median", "size": 4}], "versions[0].size"),
    ([INVERT | {"sigma": 2}], "versions[0].sigma"),
    ([GREY | {"quality": 0}], "versions[0].quality"),
    ([GREY | {"frames": "all"}], "versions[0].frames"),
    ([GREY | {"id": 7}], "versions[0].id"),
    ([GREY | {"id": "x" * 257}], "versions[0].id"),
    ([{"id": "empty"}], "versions[0].ops"),
    ([INVERT, INVERT | {"format": "jpeg", "lossless": True}], "versions[1].lossless"),
    ([GREY, "grayscale"], "versions[1]"),
    (GREY, "versions"),
    ([GREY] * 65, "versions"),
    ("[{", "versions"),
]
ENCODING: list[tuple[str, str, object]] = [
    ("format=jpeg&lossless=true", "lossless", True),
    ("format=png&png_level=10", "png_level", "10"),
    ("format=jpeg&chroma=411", "chroma", "411"),
    ("format=jpeg&metadata=some", "metadata", "some"),
    ("format=bmp", "format", "bmp"),
    ("max_bytes=9" + "9" * 30, "max_bytes", "9" * 31),
    ("progressive=true", "progressive", True),  # the source is a PNG
    ("lossless=perhaps", "lossless", "perhaps"),
]
WRONG = [
    *((f"/classify?{query}", path) for query, path in LABELS),
    *((f"/filter?{query}", path) for query, path in FILTERS),
    *((process(versions), path) for versions, path in VERSIONS),
    *((f"/filter?name=invert&{query}", path) for query, path, _ in ENCODING),
    ("/process?labels=false", "versions"),
    ("/process?model=resnet51", "model"),
    ("/info?color=1", "color"),
    ("/match", "template"),
    ("/match?template=x", "template"),
]
GIVEN = {f"/filter?name=invert&{query}": given for query, _, given in ENCODING}


def test_a_wrong_option_is_422_with_its_path_and_a_reason(client: httpx.Client) -> None:
    kind = {"Content-Type": "application/octet-stream"}
    for url, path in WRONG:
        reply = client.post(url, content=png(), headers=kind)
        assert reply.status_code == 422, url
        problem = reply.json()
        error = problem["errors"][0]
        assert error["path"] == path, url
        assert path in problem["detail"] or "labels=false" in url, url
        assert len(error["message"]) > 10, url
        if url in GIVEN:
            assert error["given"] == GIVEN[url]
        if path == "model":
            assert "allowed: resnet18" in problem["detail"]
