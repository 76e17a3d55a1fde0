"""Networks of the operator's own over HTTP: labels, logits and embeddings beside a built-in one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image as PillowImage

from tests.e2e.conftest import Running, Start
from tests.own_networks import LABELS, evaluated, save
from tests.pictures import encoded

PIXELS = np.random.default_rng(2).integers(0, 256, (120, 90, 3), np.uint8)
PICTURE = encoded(PillowImage.fromarray(PIXELS), "PNG")
RAW = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("networks")
    for name in ("own-vit", "own-siglip"):
        save(name, made)
    return made


@pytest.fixture(scope="module")
def served(start: Start, parent: Path) -> Iterator[Running]:
    networks = f"{parent}/own-siglip,resnet18,{parent}/own-vit"
    with start(networks=networks, weights="resnet18=random", warm=True) as running:
        yield running


def ask(client: httpx.Client, **options: str) -> dict[str, Any]:
    reply = client.post("/classify", params=options, content=PICTURE, headers=RAW)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_a_network_without_classes_has_an_embedding_alone(served: Running, parent: Path) -> None:
    expected = evaluated("own-siglip", parent / "own-siglip", PIXELS)
    (found,) = ask(served.client, output="embedding")["results"]
    assert np.abs(np.array(found["embedding"]) - expected).max() <= 1e-5
    for path in ("/classify", "/process?labels=true"):
        reply = served.client.post(path, content=PICTURE, headers=RAW)
        assert reply.status_code == 422
        assert "own-siglip has no classes; ask for output=embedding" in reply.json()["detail"]
    index = served.client.post("/v2/repository/index", json={}).json()
    names = [each["name"] for each in index]
    assert "own-siglip_embedding" in names
    assert "own-siglip" not in names
    assert {"own-vit", "own-vit_embedding", "resnet18"} <= {*names}


def test_the_catalogue_states_labels_and_the_width_of_embeddings(served: Running) -> None:
    models = {each["network"]: each for each in served.client.get("/models").json()["models"]}
    assert models["own-vit"]["features"] == 32
    assert [each["label"] for each in models["own-vit"]["classes"]] == LABELS
    assert (models["own-siglip"]["n_classes"], models["own-siglip"]["classes"]) == (0, [])
    config = served.client.get("/v2/models/own-vit").json()
    assert config["inputs"][-1]["shape"] == [-1, 3, 64, 64]
    assert json.dumps(config["outputs"]).count("[-1, 5]") == 2
