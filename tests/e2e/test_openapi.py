"""The OpenAPI document is true: it is valid, says what there is, and nothing it allows is a 5xx."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from fastapi.openapi.models import OpenAPI
from hypothesis import strategies as st
from PIL import Image

from tests.pictures import png

IMAGE_ROUTES = ("/classify", "/filter", "/info", "/process")
DATA_URI = "data:image/png;base64," + base64.b64encode(png()).decode()


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> Any:
    return client.get("/openapi.json").json()


def schemas(value: Any, key: str = "") -> Iterator[dict[str, Any]]:
    """Yield every schema in a part of a document."""
    if isinstance(value, dict):
        if key == "schema":
            yield value
        for name, each in value.items():
            yield from schemas(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from schemas(each)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_document_is_valid(document: Any) -> None:
    OpenAPI.model_validate(document)
    for reference in references(document):
        assert reference.startswith("#/components/schemas/")
        assert reference.rsplit("/", 1)[1] in document["components"]["schemas"]
    every = [*schemas(document["paths"]), *document["components"]["schemas"].values()]
    for schema in every:
        jsonschema.Draft202012Validator.check_schema(schema)
    assert len(every) > 50


def test_operations_have_stable_ids_of_their_own(document: Any) -> None:
    assert {
        operation["operationId"]: f"{m} {path}" for path, m, operation in operations(document)
    } == {
        "classify": "post /classify",
        "filter": "post /filter",
        "process": "post /process",
        "info": "post /info",
        "list_filters": "get /filters",
        "describe_filter": "get /filters/{name}",
        "filter_thumbnail": "get /filters/{name}/thumbnail",
        "list_models": "get /models",
        "make_job": "post /jobs",
        "list_jobs": "get /jobs",
        "get_job": "get /jobs/{id}",
        "delete_job": "delete /jobs/{id}",
        "cancel_job": "post /jobs/{id}/cancel",
        "job_results": "get /jobs/{id}/results",
        "livez": "get /livez",
        "readyz": "get /readyz",
        "startupz": "get /startupz",
        "metrics": "get /metrics",
        "v2_server": "get /v2",
        "v2_live": "get /v2/health/live",
        "v2_ready": "get /v2/health/ready",
        "v2_statistics": "get /v2/models/stats",
        "v2_repository_index": "post /v2/repository/index",
        "v2_model": "get /v2/models/{model}",
        "v2_model_ready": "get /v2/models/{model}/ready",
        "v2_model_config": "get /v2/models/{model}/config",
        "v2_model_statistics": "get /v2/models/{model}/stats",
        "v2_infer": "post /v2/models/{model}/infer",
    }


@pytest.mark.parametrize("path", IMAGE_ROUTES)
def test_image_routes_say_their_headers_fields_and_errors(document: Any, path: str) -> None:
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


def test_what_the_document_refuses_is_refused(client: httpx.Client, document: Any) -> None:
    for path in IMAGE_ROUTES:
        content = document["paths"][path]["post"]["requestBody"]["content"]
        body = {"urls": ["http://a/"], "no_such_key": 1}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(body, content["application/json"]["schema"])
        assert client.post(path, json=body).status_code == 422
        assert client.post(path, files={"file": b"x"}, data={"no_such": "1"}).status_code == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/classify", {"images": [{"data": DATA_URI, "id": "a"}], "top_k": 3}),
        ("/filter", {"images": [{"data": DATA_URI}], "name": "gaussian_blur", "sigma": 2}),
        ("/filter", {"images": [{"data": DATA_URI}], "ops": [{"name": "invert"}], "quality": 9}),
        ("/process", {"images": [{"data": DATA_URI}], "versions": [{"name": "invert"}]}),
    ],
)
def test_what_works_is_in_the_document(
    client: httpx.Client, document: Any, path: str, body: dict[str, Any]
) -> None:
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


@pytest.mark.parametrize("path", ["/filters", "/filters/sobel", "/models"])
def test_the_catalogue_is_as_it_is_described(
    client: httpx.Client, document: Any, path: str
) -> None:
    template = path.replace("sobel", "{name}")
    schema = document["paths"][template]["get"]["responses"]["200"]["content"]
    validate(client.get(path).json(), schema["application/json"]["schema"], document)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(width=32) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def allowed(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in schema:
        return st.one_of([allowed(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    match schema.get("type"):
        case "integer":
            return st.integers(low, high)
        case "number":
            return st.floats(low, high, allow_nan=False)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(JSON_VALUES, max_size=3)
        case "null":
            return st.none()
    return st.sampled_from(schema.get("examples", ["a"])) | st.text(max_size=20)
