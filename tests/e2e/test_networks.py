"""Several networks side by side over HTTP: chosen by `model`, with labels, logits, embeddings."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models import codec
from models.networks.registry import NETWORKS
from tests.e2e.conftest import Running, Start
from tests.pictures import as_image, jpeg
from workers.engines.model import State, random_state
from workers.preprocess import crop

RAW = {"Content-Type": "application/octet-stream"}
CLASSES = 6
PHOTO = jpeg(5, 320, 240)


@pytest.fixture(scope="module")
def state() -> State:
    return random_state(4, CLASSES, NETWORKS["resnet50"])


@pytest.fixture(scope="module")
def served(
    start: Start, state: State, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("weights")
    path, labels = folder / "own.pth", folder / "six.txt"
    torch.save(state, path)
    labels.write_text("".join(f"class {n}\n" for n in range(CLASSES)))
    with start(
        networks="resnet18,resnet50,resnet34",
        weights=f"resnet18=bundled,resnet50={path},resnet34=imagenet1k_v1",
        weights_labels=f"resnet50={labels}",
        weights_sha256=f"resnet50={digest(path)}",
        cache_folder=unwritable(folder),
        precision="fp32",
    ) as running:
        yield running


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def unwritable(folder: Path) -> Path:
    """Return a cache folder that cannot be made, so that nothing is downloaded."""
    blocked = folder / "blocked"
    blocked.write_text("a file, not a folder")
    return blocked


def ask(client: httpx.Client, **options: str) -> dict[str, Any]:
    reply = client.post("/classify", params=options, content=PHOTO, headers=RAW)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def reference(state: State, *, embedding: bool) -> NDArray[np.float32]:
    """Return what torchvision's resnet50 gives for the photo."""
    import torchvision

    network = torchvision.models.resnet50(num_classes=CLASSES)
    network.load_state_dict(state)
    if embedding:
        network.fc = torch.nn.Identity()
    preprocessing = NETWORKS["resnet50"].preprocessing
    pixels = crop(as_image(codec.decode(PHOTO, max_pixels=10**7).image), preprocessing)
    levels = torch.from_numpy(pixels).permute(2, 0, 1).float().div(255)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (preprocessing.mean, preprocessing.std))
    with torch.inference_mode():
        found: NDArray[np.float32] = network.eval()((levels - mean).div(std)[None])[0].numpy()
    return found


def test_a_network_is_chosen_by_model_and_named_in_the_answer(served: Running) -> None:
    for name, weights in (("resnet18", "bundled"), ("resnet50", "own.pth")):
        reply = served.client.post(f"/classify?model={name}", content=PHOTO, headers=RAW)
        assert reply.json()["model"]["network"] == name
        assert reply.json()["model"]["name"] == weights
        assert reply.headers["x-model"].endswith(f"; network={name}")
    labels = [each["label"] for each in reply.json()["results"][0]["predictions"]]
    assert all(label.startswith("class ") for label in labels)


def test_an_unknown_model_is_refused_with_the_allowed_ones(served: Running) -> None:
    for path in ["/classify", "/process"]:
        reply = served.client.post(f"{path}?model=resnet51", content=PHOTO, headers=RAW)
        assert reply.status_code == 422
        problem = reply.json()
        assert problem["code"] == "invalid_parameter"
        assert problem["errors"][0]["path"] == "model"
        assert "allowed: resnet18, resnet50, resnet34" in problem["detail"]


@pytest.mark.parametrize("output", ["logits", "embedding"])
def test_vectors_are_torchvision_s_own_as_numbers_and_as_base64(
    served: Running, state: State, output: str
) -> None:
    expected = reference(state, embedding=output == "embedding")
    options = {"model": "resnet50", "output": output}
    (numbers,) = ask(served.client, **options)["results"]
    (text,) = ask(served.client, **options, vector_format="base64")["results"]
    assert "predictions" not in numbers
    vector = np.array(numbers[output], np.float32)
    assert vector.shape == expected.shape
    assert np.abs(vector - expected).max() <= 1e-5 * np.abs(expected).max()
    assert np.frombuffer(base64.b64decode(text[output]), "<f4").tobytes() == vector.tobytes()


def test_the_same_image_has_the_same_embedding_whatever_else_is_computed(served: Running) -> None:
    options = {"output": "embedding", "vector_format": "base64"}
    alone = ask(served.client, **options)["results"][0]["embedding"]
    files = [("files", (str(n), PHOTO if n % 2 else jpeg(n, 200, 150))) for n in range(8)]
    many = served.client.post("/classify", params=options, files=files).json()["results"]
    assert {each["embedding"] for each in many if int(each["source"]) % 2} == {alone}
    assert len({each["embedding"] for each in many}) == 5


def test_options_that_do_not_fit_the_output_are_refused(served: Running) -> None:
    for options, path in [
        ({"output": "logits", "top_k": "3"}, "top_k"),
        ({"output": "embedding", "function_to_apply": "none"}, "function_to_apply"),
        ({"vector_format": "base64"}, "vector_format"),
        ({"output": "features"}, "output"),
    ]:
        reply = served.client.post("/classify", params=options, content=PHOTO, headers=RAW)
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["path"] == path


def test_models_lists_every_network_with_weights_and_why_one_has_none(served: Running) -> None:
    catalogue = served.client.get("/models").json()
    listed = [
        (each["network"], each["features"], each["n_classes"]) for each in catalogue["models"]
    ]
    assert listed == [("resnet18", 512, 10), ("resnet50", 2048, CLASSES)]
    assert "resnet34/imagenet1k_v1" in catalogue["problem"]
