"""The OpenAPI document is true: it is valid, says what there is, and nothing it allows is a 5xx."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from fastapi.openapi.models import OpenAPI
from PIL import Image

from tests.pictures import png

IMAGE_ROUTES = ("/classify", "/filter", "/info", "/process")
DATA_URI = "data:image/png;base64," + base64.b64encode(png()).decode()


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> Any:
    return client.get("/openapi.json").json()


def walk(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of a document, with its key or that of its list."""
    yield key, value
    if isinstance(value, dict):
        for name, each in value.items():
            yield from walk(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from walk(each, key)


def test_the_document_is_valid(document: Any) -> None:
    OpenAPI.model_validate(document)
    for reference in [each for key, each in walk(document) if key == "$ref"]:
        assert reference.startswith("#/components/schemas/")
        assert reference.rsplit("/", 1)[1] in document["components"]["schemas"]
    every = [each for key, each in walk(document["paths"]) if key == "schema"]
    every += document["components"]["schemas"].values()
    for schema in every:
        jsonschema.Draft202012Validator.check_schema(schema)
    assert len(every) > 50
    assert {key for key, _ in walk(every)}.isdisjoint(("ge", "le"))  # but minimum and maximum


def test_operations_have_ids_of_their_own_which_clients_are_generated_from(document: Any) -> None:
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len({*ids}) == len(ids)
    names = "classify filter process info match list_filters make_job v2_infer"
    assert {*names.split()} <= {*ids}


def test_image_routes_say_their_headers_fields_and_errors(document: Any) -> None:
    for path in IMAGE_ROUTES:
        operation = document["paths"][path]["post"]
        headers = {p["name"] for p in operation["parameters"] if p["in"] == "header"}
        assert headers == {"X-Deadline-Ms", "X-Request-ID", "If-None-Match"}
        assert all("ETag" in operation["responses"][code]["headers"] for code in ("200", "304"))
        schemes = document["components"]["securitySchemes"]
        assert operation["security"] == [{}, *({name: []} for name in schemes)]
        content = operation["requestBody"]["content"]
        form, body = content["multipart/form-data"]["schema"], content["application/json"]["schema"]
        assert {"file", "files", "urls", "_charset_"} <= form["properties"].keys()
        assert form["additionalProperties"] is body["additionalProperties"] is False
        assert body["properties"]["images"]["items"]["additionalProperties"] is False
        names = "400 401 403 406 408 413 415 422 429 431 500 502 503 504"
        for code in names.split():
            problem = operation["responses"][code]
            assert [*problem["content"]] == ["application/problem+json"]
            assert ("Retry-After" in problem["headers"]) == (code in ("429", "503"))


def test_what_works_is_in_the_document(client: httpx.Client, document: Any) -> None:
    for path, body in [
        ("/classify", {"images": [{"data": DATA_URI, "id": "a"}], "top_k": 3}),
        ("/filter", {"images": [{"data": DATA_URI}], "name": "gaussian_blur", "sigma": 2}),
        ("/filter", {"images": [{"data": DATA_URI}], "ops": [{"name": "invert"}], "quality": 9}),
        ("/process", {"images": [{"data": DATA_URI}], "versions": [{"name": "invert"}]}),
    ]:
        operation = document["paths"][path]["post"]
        jsonschema.validate(body, operation["requestBody"]["content"]["application/json"]["schema"])
        reply = client.post(path, json=body)
        assert reply.status_code == 200
        kind = reply.headers["Content-Type"].partition(";")[0]
        described = operation["responses"]["200"]["content"][kind]["schema"]
        if kind == "application/json":
            validate(reply.json(), described, document)
        else:
            assert Image.open(io.BytesIO(reply.content)).size


def validate(value: Any, schema: dict[str, Any], document: Any) -> None:
    jsonschema.validate(value, schema | {"components": document["components"]})


def test_the_catalogue_is_as_it_is_described(client: httpx.Client, document: Any) -> None:
    for path in ["/filters", "/filters/sobel", "/models"]:
        template = path.replace("sobel", "{name}")
        schema = document["paths"][template]["get"]["responses"]["200"]["content"]
        validate(client.get(path).json(), schema["application/json"]["schema"], document)
