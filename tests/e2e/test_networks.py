"""Several networks side by side over HTTP: chosen by `model`, with labels, logits, embeddings."""

import base64
import hashlib
import os
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from models.networks.registry import NETWORKS
from tests.e2e.conftest import Running, Start
from tests.pictures import jpeg
from workers.engines.model import random_state

RAW = {"Content-Type": "application/octet-stream"}
CLASSES = 6
PHOTO = jpeg(5, 320, 240)


@pytest.fixture(scope="module")
def served(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("weights")
    path, labels = folder / "own.pth", folder / "six.txt"
    torch.save(random_state(4, CLASSES, NETWORKS["resnet50"]), path)
    labels.write_text("".join(f"class {n}\n" for n in range(CLASSES)))
    with start(
        networks="resnet18,resnet50,resnet34",
        weights=f"resnet18=bundled,resnet50={path},resnet34=imagenet1k_v1",
        weights_labels=f"resnet50={labels}",
        weights_sha256=f"resnet50={hashlib.sha256(path.read_bytes()).hexdigest()}",
        cache_folder=os.devnull,  # no folder, so that nothing is downloaded
        precision="fp32",
    ) as running:
        yield running


def ask(client: httpx.Client, **options: str) -> dict[str, Any]:
    reply = client.post("/classify", params=options, content=PHOTO, headers=RAW)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_network_is_chosen_by_model_and_named_in_the_answer(served: Running) -> None:
    for name, weights in (("resnet18", "bundled"), ("resnet50", "own.pth")):
        reply = served.client.post(f"/classify?model={name}", content=PHOTO, headers=RAW)
        assert reply.json()["model"]["network"] == name
        assert reply.json()["model"]["name"] == weights
        assert reply.headers["x-model"].endswith(f"; network={name}")
    labels = [each["label"] for each in reply.json()["results"][0]["predictions"]]
    assert all(label.startswith("class ") for label in labels)


@pytest.mark.parametrize("output", ["logits", "embedding"])
def test_vectors_come_as_numbers_and_as_base64(served: Running, output: str) -> None:
    """`tests/unit/workers/engines/cpu/test_vectors.py` compares the numbers with torchvision's."""
    options = {"model": "resnet50", "output": output}
    (numbers,) = ask(served.client, **options)["results"]
    (text,) = ask(served.client, **options, vector_format="base64")["results"]
    assert "predictions" not in numbers
    vector = np.array(numbers[output], np.float32)
    assert vector.shape == ({"logits": CLASSES, "embedding": 2048}[output],)
    assert np.frombuffer(base64.b64decode(text[output]), "<f4").tobytes() == vector.tobytes()


def test_models_lists_every_network_with_weights_and_why_one_has_none(served: Running) -> None:
    catalogue = served.client.get("/models").json()
    listed = [
        (each["network"], each["features"], each["n_classes"]) for each in catalogue["models"]
    ]
    assert listed == [("resnet18", 512, 10), ("resnet50", 2048, CLASSES)]
    assert "resnet34/imagenet1k_v1" in catalogue["problem"]
