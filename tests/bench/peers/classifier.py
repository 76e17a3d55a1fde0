"""ResNet18 as both peers use it: Pillow decodes, resizes and crops, torch does the rest.

fp16 and channels last on a GPU, normalisation on the device; fp32 without one.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Classifier:
    """A loaded and warmed-up network."""

    def __init__(self, weights: str, device: str, batch: int) -> None:
        torch.set_num_threads(1)
        state: dict[str, torch.Tensor] = (
            load_file(weights)
            if Path(weights).suffix == ".safetensors"
            else torch.load(weights, weights_only=True)
        )
        network = torchvision.models.resnet18(num_classes=state["fc.weight"].shape[0])
        network.load_state_dict(state)
        self._device = torch.device(device)
        self._dtype = torch.float16 if self._device.type == "cuda" else torch.float32
        self._network = network.eval().to(
            self._device, self._dtype, memory_format=torch.channels_last
        )
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(MEAN, device=self._device).view(shape).mul_(255).to(self._dtype)
        self._std = torch.tensor(STD, device=self._device).view(shape).mul_(255).to(self._dtype)
        for _ in range(2):
            self.labels([np.zeros((224, 224, 3), np.uint8)] * batch)

    def labels(self, crops: Sequence["np.ndarray[Any, Any]"]) -> list[tuple[int, float]]:
        """Return the best class of each image and its score."""
        with torch.inference_mode():
            pixels = torch.from_numpy(np.stack(crops)).to(self._device).permute(0, 3, 1, 2)
            scores = self._network(pixels.to(self._dtype).sub_(self._mean).div_(self._std))
            best, classes = scores.float().softmax(1).max(1)
            return list(zip(classes.tolist(), best.tolist(), strict=True))


def crop(jpeg: bytes) -> "np.ndarray[Any, Any]":
    """Return torchvision's resize to 256 and centre crop of 224, on Pillow's own pixels."""
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    width, height = image.size
    short = min(width, height)
    image = image.resize((256 * width // short, 256 * height // short), Image.Resampling.BILINEAR)
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    return np.asarray(image.crop((left, top, left + 224, top + 224)))
