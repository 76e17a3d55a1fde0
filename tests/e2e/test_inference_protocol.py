"""The Open Inference Protocol, spoken by Triton's own client, and the answers of `/classify`."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import httpx
import numpy as np
import pytest
import torch
import tritonclient.http as triton
from numpy.typing import NDArray
from PIL import Image as PillowImage
from tritonclient.utils import InferenceServerException

from models.networks.registry import RESNET18
from tests.e2e.conftest import Running
from tests.pictures import jpeg, png

FILES = [jpeg(1), png(), jpeg(2)]
INFER = "/v2/models/resnet18/infer"


@pytest.fixture(scope="module")
def client_of_triton(server: Running) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as made:
        yield made


Client: TypeAlias = triton.InferenceServerClient


def files(contents: Sequence[bytes], module: Any = triton) -> Any:
    """Return files as an input of Triton's client over HTTP, or over gRPC by its `module`."""
    found = module.InferInput("IMAGE", [len(contents)], "BYTES")
    found.set_data_from_numpy(np.array(contents, dtype=object))
    return found


def tensor(name: str, values: Any, module: Any = triton, **options: bool) -> Any:
    datatype = {"uint8": "UINT8", "float32": "FP32"}[str(values.dtype)]
    found = module.InferInput(name, list(values.shape), datatype)
    found.set_data_from_numpy(values, **options)
    return found


def pixels(contents: bytes) -> "NDArray[np.uint8]":
    return np.asarray(PillowImage.open(io.BytesIO(contents)).convert("RGB"))


def preprocessed(contents: bytes) -> "NDArray[np.float32]":
    """Return a file as torchvision preprocesses it: float32 (3, 224, 224)."""
    opened = PillowImage.open(io.BytesIO(contents)).convert("RGB")
    from torchvision.models import ResNet18_Weights

    values = ResNet18_Weights.DEFAULT.transforms()(opened)
    assert isinstance(values, torch.Tensor)
    return values.numpy()


def logits_of(client: httpx.Client, contents: bytes) -> "NDArray[np.float32]":
    """Return the logits that `/classify` gives."""
    reply = client.post("/classify?output=logits", content=contents, headers=RAW)
    return np.array(reply.json()["results"][0]["logits"], np.float32)


RAW = {"Content-Type": "application/octet-stream"}


def test_health_and_metadata_are_those_of_the_server(
    client_of_triton: Client, client: httpx.Client
) -> None:
    assert client_of_triton.is_server_live()
    assert client_of_triton.is_server_ready()
    (model,) = client.get("/models").json()["models"]
    version = model["sha256"][:12]
    for name in ("", "1", version):
        assert client_of_triton.is_model_ready("resnet18", name)
        assert client_of_triton.get_model_metadata("resnet18", name)["versions"] == [version]
    assert not client_of_triton.is_model_ready("resnet18", "7")
    assert not client_of_triton.is_model_ready("vgg")
    found = client_of_triton.get_server_metadata()
    assert found["name"] == "darkroom"
    assert {"classification", "binary_tensor_data"} <= {*found["extensions"]}
    metadata = client_of_triton.get_model_metadata("resnet18")
    side = RESNET18.preprocessing.crop
    assert {"name": "INPUT", "datatype": "FP32", "shape": [-1, 3, side, side]} in metadata["inputs"]
    shape = [-1, model["n_classes"]]
    assert {"name": "SCORES", "datatype": "FP32", "shape": shape} in metadata["outputs"]
    configured = client_of_triton.get_model_config("resnet18")
    assert [each["name"] for each in configured["input"]] == ["IMAGE", "PIXELS", "INPUT"]
    index = client_of_triton.get_model_repository_index()
    assert [each["name"] for each in index] == ["resnet18", "resnet18_embedding"]
    assert {each["state"] for each in index} == {"READY"}


def test_a_batch_of_files_has_the_scores_of_classify(
    client_of_triton: Client, client: httpx.Client
) -> None:
    found = client_of_triton.infer("resnet18", [files(FILES)], request_id="mine")
    logits = np.stack([logits_of(client, each) for each in FILES])
    assert (found.as_numpy("LOGITS") == logits).all()
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares = powers / powers.sum(1, keepdims=True)
    assert np.allclose(found.as_numpy("SCORES"), shares, atol=1e-7)
    assert found.as_numpy("ERROR").tolist() == [b"", b"", b""]
    reply = found.get_response()
    model = client.get("/models").json()["models"][0]
    assert (reply["id"], reply["model_name"]) == ("mine", "resnet18")
    assert reply["parameters"]["weights_sha256"] == model["sha256"]
    assert reply["model_version"] == model["sha256"][:12]
    stages = json.loads(reply["parameters"]["timing_ms"])
    assert len(stages) == 3
    assert all({"decode", "queue", "compute"} <= each.keys() for each in stages)


def test_samples_and_inputs_have_the_logits_of_their_file(
    client_of_triton: Client, client: httpx.Client
) -> None:
    for binary in [True, False]:
        contents = png()  # its decoder has no choice
        wanted = [triton.InferRequestedOutput("LOGITS", binary_data=binary)]
        expected = logits_of(client, contents)
        for given in (
            tensor("PIXELS", np.stack([pixels(contents)] * 2), binary_data=binary),
            tensor("INPUT", np.stack([preprocessed(contents)] * 2), binary_data=binary),
        ):
            found = client_of_triton.infer("resnet18", [given], outputs=wanted).as_numpy("LOGITS")
            assert (found == expected).all(), given.name()


def test_what_is_not_supported_is_refused_with_a_reason(client_of_triton: Client) -> None:
    for call in (
        lambda: client_of_triton.load_model("resnet18"),
        client_of_triton.get_system_shared_memory_status,
        client_of_triton.get_trace_settings,
    ):
        with pytest.raises(InferenceServerException, match="there is no /v2/"):
            call()
    given = files(FILES[:1])
    with pytest.raises(InferenceServerException, match="priorities"):
        client_of_triton.infer("resnet18", [given], priority=1)
    given.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="shared memory"):
        client_of_triton.infer("resnet18", [given])


def test_statistics_count_images_batches_and_failures(client_of_triton: Client) -> None:
    def counted() -> dict[str, Any]:
        (found,) = client_of_triton.get_inference_statistics("resnet18")["model_stats"]
        return dict(found)

    before = counted()
    client_of_triton.infer("resnet18", [files(FILES)])
    with pytest.raises(InferenceServerException):
        client_of_triton.infer("resnet18", [files([])])
    after = counted()
    assert after["inference_count"] - before["inference_count"] == 3
    assert 1 <= after["execution_count"] - before["execution_count"] <= 3
    for outcome in ("success", "fail"):
        stats = [each["inference_stats"][outcome]["count"] for each in (before, after)]
        assert stats[1] - stats[0] == 1, outcome
    every = client_of_triton.get_inference_statistics()["model_stats"]
    assert [each["name"] for each in every] == ["resnet18", "resnet18_embedding"]


def test_every_error_has_the_form_of_the_protocol(client: httpx.Client) -> None:
    for method, path, content, headers, status in [
        ("POST", INFER, b"{", {}, 400),
        ("POST", INFER, b"{}", {"Content-Type": "application/x-ndjson"}, 415),
        ("POST", "/v2/models/resnet18/versions/9/infer", b"{}", {}, 404),
        ("POST", INFER, b"{}", {"X-Deadline-Ms": "soon"}, 422),
        ("POST", INFER, b"{}", {"Content-Encoding": "br"}, 415),
        ("GET", INFER, b"", {}, 405),
        ("GET", "/v2/nothing", b"", {}, 404),
        ("DELETE", "/v2/models/resnet18", b"", {}, 405),
    ]:
        reply = client.request(method, path, content=content, headers=headers)
        assert reply.status_code == status, reply.text
        assert reply.headers["Content-Type"] == "application/json"
        assert [*reply.json()] == ["error"]
        assert "X-Request-ID" in reply.headers
