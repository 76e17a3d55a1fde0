"""Folders of timm's networks on the CPU: the results of timm's own evaluation, or a clear error."""

import builtins
import hashlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models import codec
from models.domain.image import Image
from models.networks.served import Model
from models.settings import Settings
from tests.own_networks import LABELS, OWN, evaluated, network, save
from tests.pictures import as_image
from tests.shared import PHOTOS
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import Loaded, load_models
from workers.preprocess import crop


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the folder of each network."""
    made = tmp_path_factory.mktemp("networks")
    for name in OWN:
        save(name, made)
    return made


def load(*folders: Path, **given: str) -> list[Loaded]:
    settings = Settings.model_validate(
        {"networks": ",".join(map(str, folders)), "precision": "fp32", **given}
    )
    return load_models(
        settings, "cpu", lambda spec, state: CpuNetwork(state, settings.precision, spec)
    )


def images(photos: int = 20) -> list[Image]:
    random = np.random.default_rng(3)
    sizes = [(224, 224), (64, 64), (31, 77), (640, 333), (900, 70), (70, 900), (1, 1)]
    found = [Image(random.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
    paths = sorted(PHOTOS.iterdir())[:photos] if PHOTOS.is_dir() else []
    files = [as_image(codec.decode(path.read_bytes(), max_pixels=10**8).image) for path in paths]
    return found + [codec.flatten(each) for each in files]


@pytest.mark.parametrize("name", OWN)
def test_logits_and_embeddings_are_those_of_timm_s_own_evaluation(name: str, parent: Path) -> None:
    (loaded,) = load(parent / name)
    model, made = loaded.served.model, loaded.network
    assert isinstance(model, Model)
    digest = hashlib.sha256((parent / name / "model.safetensors").read_bytes()).hexdigest()
    assert (model.record.network, model.record.sha256) == (name, digest)
    assert model.labels.labels == tuple(LABELS[: network(name).num_classes])
    assert loaded.served.features == network(name).head_hidden_size
    for image in images():
        crops = crop(image, made.spec.preprocessing)[None]
        expected = evaluated(name, parent / name, image.pixels)
        found = made.logits(crops) if model.labels.labels else made.features(crops)
        assert np.abs(found[0] - expected).max() <= 1e-5 * max(1, np.abs(expected).max())
        assert made.features(crops).shape == (1, loaded.served.features)
        assert made.logits(crops).shape == (1, len(model.labels.labels))


@pytest.mark.slow
def test_logits_of_whole_architectures_are_those_of_timm(tmp_path: Path) -> None:
    names = ("vit_tiny_patch16_224", "convnext_atto", "efficientnet_b0")
    networks = [each.network for each in load(*(save(name, tmp_path) for name in names))]
    for image in images(200):
        for name, made in zip(names, networks, strict=True):
            expected = evaluated(name, tmp_path / name, image.pixels)
            found = made.logits(crop(image, made.spec.preprocessing)[None])[0]
            assert np.abs(found - expected).max() <= 1e-5 * max(1, np.abs(expected).max())


def test_a_checkpoint_of_timm_s_training_is_served(parent: Path, tmp_path: Path) -> None:
    state = {f"module.{name}": tensor for name, tensor in network("own-vit").state_dict().items()}
    path = tmp_path / "model_best.pth.tar"
    torch.save({"epoch": 2, "args": Namespace(lr=0.1), "state_dict": state}, path)
    loaded, _ = load(parent / "own-vit", parent / "own-resnet", weights=f"own-vit={path}")
    assert loaded.served.model is not None
    assert loaded.served.model.record.name == "model_best.pth.tar"
    image = images()[0]
    found = loaded.network.logits(crop(image, loaded.network.spec.preprocessing)[None])[0]
    expected = evaluated("own-vit", parent / "own-vit", image.pixels)
    assert np.abs(found - expected).max() <= 1e-5


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"architecture": "vit_tinny_patch16_224"}, r"did you mean 'vit_tiny_patch16_224'\?"),
        ({"architecture": "hf-hub:timm/resnet18"}, "has no architecture 'hf-hub:timm/resnet18'"),
        ({"model_args": {"widht": 3}}, "cannot be built with the model_args.*widht"),
        (
            {"model_args": {"embed_dim": 48, "depth": 2, "num_heads": 2, "img_size": 64}},
            r"does not hold the weights of timm's vit_tiny_patch16_224: cls_token is \(1, 1, 32\)",
        ),
        ({"num_classes": 4, "label_names": LABELS[:4]}, "has 5 classes, but there are 4 labels"),
        (
            {"architecture": "vit_tiny_patch16_224", "model_args": {"global_pool": ""}},
            "not a vector",
        ),
        (
            {"architecture": "deit_tiny_distilled_patch16_224", "model_args": {"img_size": 64}},
            "last layer of deit_tiny_distilled_patch16_224 is not a single Linear layer",
        ),
    ],
)
def test_a_folder_that_cannot_be_served_says_why(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    folder = save("own-vit", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ValueError, match=problem):
        load(folder)


def test_a_checkpoint_that_the_arguments_name_is_not_opened(tmp_path: Path) -> None:
    folder = save("own-vit", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["model_args"]["checkpoint_path"] = str(tmp_path / "none.pth")
    (folder / "config.json").write_text(json.dumps(config))
    (loaded,) = load(folder)
    assert loaded.network is not None


def test_without_timm_the_error_says_how_to_install_it(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def importing(name: str, *given: Any, **more: Any) -> Any:
        if name == "timm":
            raise ImportError("No module named 'timm'")
        return original(name, *given, **more)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(ValueError, match=r"needs the extra timm .*pip install timm torch==2\."):
        load(parent / "own-vit")
