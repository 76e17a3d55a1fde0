"""Folders of timm's networks with random weights, and timm's own evaluation of them."""

import functools
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from PIL import Image as PillowImage

N_CLASSES = 5
LABELS = [f"kind {n}" for n in range(N_CLASSES)]
SMALL_VIT = {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": 64}

OWN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "own-vit": ("vit_tiny_patch16_224", SMALL_VIT, {"input_size": [3, 64, 64]}),
    "own-convnext": (
        "convnext_atto",
        {"depths": [1, 1, 1, 1], "dims": [8, 16, 24, 32]},
        {"input_size": [3, 96, 96], "interpolation": "bilinear", "crop_pct": 0.95},
    ),
    "own-resnet": ("resnet18", {"block_args": {}, "channels": [8, 8, 16, 16]}, {}),
    "own-siglip": (
        "vit_base_patch16_siglip_224",
        {**SMALL_VIT, "num_classes": 0},
        {"input_size": [3, 64, 64], "crop_pct": 1.0, "crop_mode": "squash", "num_classes": 0},
    ),
}
"""The architecture, its arguments and the changed preprocessing of small networks, by name."""


def described(name: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the entry of a small network, or else of timm's architecture of this name."""
    return OWN.get(name, (name, {}, {}))


@functools.cache
def network(name: str) -> Any:
    """Return a network of timm with random weights, which are always the same."""
    timm = pytest.importorskip("timm")
    architecture, arguments, _ = described(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        made = timm.create_model(architecture, **{"num_classes": N_CLASSES, **arguments})
        for parameter in made.parameters():  # the same for all images, where layers begin as zeros
            parameter.data.add_(torch.randn(parameter.shape) * 0.05)
    return made.eval()


def save(name: str, parent: Path) -> Path:
    """Write the folder of a network below `parent` as timm writes it, and return it."""
    made, (architecture, arguments, changes) = network(name), described(name)
    folder = parent / name
    folder.mkdir()
    config = {
        "architecture": architecture,
        "num_classes": made.num_classes,
        "label_names": LABELS[: made.num_classes],
        "model_args": arguments,
        "pretrained_cfg": {**made.pretrained_cfg, **changes, "num_classes": made.num_classes},
    }
    (folder / "config.json").write_text(json.dumps(config, default=str))
    safetensors.torch.save_file(made.state_dict(), folder / "model.safetensors")
    return folder


def evaluated(name: str, folder: Path, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the result of timm's own evaluation of an image, uint8 (height, width, 3)."""
    data: Any = importlib.import_module("timm.data")
    stated = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
    transform = data.create_transform(**data.resolve_data_config({}, pretrained_cfg=stated))
    with torch.inference_mode():
        found: NDArray[np.float32] = network(name)(
            transform(PillowImage.fromarray(pixels))[None]
        ).numpy()[0]
    return found
