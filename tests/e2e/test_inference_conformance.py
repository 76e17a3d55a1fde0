"""The facts of the protocol's machine-readable definition, asked of a running server.

`open_inference_rest.yaml` of https://github.com/kserve/open-inference-protocol has the paths, the
required fields and the types; they are written down here again. There is no suite of conformance
tests. The messages of gRPC are checked in `tests/unit/app/grpc_service/test_messages.py`.
"""

import base64
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.pictures import png

TEXT, TEXTS, OBJECT = "a text", "texts", "an object"

TENSOR = {"name": TEXT, "datatype": TEXT, "shape": "whole numbers"}
SERVER = {"name": TEXT, "version": TEXT, "extensions": TEXTS}
MODEL = {"name": TEXT, "platform": TEXT}
MODEL_MAY = {"versions": TEXTS, "inputs": [TENSOR], "outputs": [TENSOR], "properties": OBJECT}
OUTPUT = {**TENSOR, "data": "values"}
ANSWER = {"model_name": TEXT, "outputs": [OUTPUT]}
ANSWER_MAY = {"model_version": TEXT, "id": TEXT, "parameters": OBJECT}
ERROR = {"error": TEXT}


def check(value: Any, wanted: Any) -> None:
    """Check a JSON value against the name of a type, the fields of an object, or a list of it."""
    if isinstance(wanted, Mapping):
        assert isinstance(value, dict)
        assert wanted.keys() <= value.keys()
        for name, kind in wanted.items():
            check(value[name], kind)
    elif isinstance(wanted, list):
        assert isinstance(value, list)
        for each in value:
            check(each, wanted[0])
    elif wanted == TEXT:
        assert isinstance(value, str)
    elif wanted == OBJECT:
        assert isinstance(value, dict)
    else:
        kinds: dict[str, tuple[type, ...]] = {
            TEXTS: (str,),
            "whole numbers": (int,),
            "values": (float, int, str, bool),
        }
        assert isinstance(value, list)
        assert all(isinstance(each, kinds[wanted]) for each in value)


def given(value: Mapping[str, Any], may: Mapping[str, Any]) -> dict[str, Any]:
    """Return the optional fields that an object has, with their types."""
    return {name: kind for name, kind in may.items() if name in value}


def test_the_server_has_every_required_field(client: httpx.Client) -> None:
    for path in ("/v2/", "/v2"):
        check(client.get(path).json(), SERVER)


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_a_model_and_its_answer_have_every_required_field(
    client: httpx.Client, version: str
) -> None:
    path = f"/v2/models/resnet18{version}"
    model = client.get(path).json()
    check(model, MODEL | given(model, MODEL_MAY))
    assert model["name"] == "resnet18"
    names = {each["name"] for each in model["outputs"]}
    tensor = {
        "name": "IMAGE",
        "datatype": "BYTES",
        "shape": [1],
        "data": [base64.b64encode(png()).decode()],
    }
    for asked in (
        {"inputs": [tensor]},
        {"inputs": [tensor], "id": "42", "outputs": [{"name": "SCORES"}], "parameters": {"a": 1}},
        {"inputs": [tensor], "outputs": [{"name": "SCORES", "parameters": {"classification": 2}}]},
    ):
        reply = client.post(f"{path}/infer", json=asked)
        assert reply.status_code == 200, reply.text
        answer = reply.json()
        check(answer, ANSWER | given(answer, ANSWER_MAY))
        assert answer.get("id") == asked.get("id")
        found = {each["name"] for each in answer["outputs"]}
        assert found == ({"SCORES"} if "outputs" in asked else names)
        for each in answer["outputs"]:
            count = 1
            for length in each["shape"]:
                count *= length
            assert len(each["data"]) == count


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"inputs": []},
        {"inputs": [{"name": "IMAGE", "shape": [1], "datatype": "BYTES"}]},
        {"inputs": [{"name": "IMAGE", "shape": [1], "data": [""]}]},
        {"inputs": [{"shape": [1], "datatype": "BYTES", "data": [""]}]},
        {"inputs": [{"name": "IMAGE", "datatype": "BYTES", "data": [""]}]},
    ],
)
def test_a_request_without_a_required_field_is_a_400_with_an_error(
    client: httpx.Client, asked: dict[str, Any]
) -> None:
    reply = client.post("/v2/models/resnet18/infer", json=asked)
    assert reply.status_code == 400
    check(reply.json(), ERROR)


def test_the_openapi_document_requires_what_the_protocol_does(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"]["/v2/models/{model}/infer"]["post"]
    request = described["requestBody"]["content"]["application/json"]["schema"]
    assert request["required"] == ["inputs"]
    assert request["properties"].keys() == {"id", "parameters", "inputs", "outputs"}
    assert {"404", "413", "415", "422", "504"} <= described["responses"].keys()
    answer = described["responses"]["200"]["content"]["application/json"]["schema"]
    assert {"model_name", "outputs"} <= {*answer["required"]}
