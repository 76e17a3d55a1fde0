"""ResNet18 on the CPU: a state dict and a precision in, logits out. Knows no jobs and no labels."""

import copy
import time
from collections.abc import Mapping
from itertools import pairwise

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from models.domain.image import Pixels
from models.settings import Precision
from models.weights import Preprocessing
from workers.engines.architecture import Network
from workers.engines.cpu.fused import FusedFeatures, supports

DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}


class ResNet18:
    """torchvision's resnet18 with its batch norms folded into the convolutions, channels last."""

    def __init__(
        self, state: Mapping[str, Tensor], precision: Precision, spec: Preprocessing
    ) -> None:
        network = Network(state["fc.weight"].shape[0])
        network.load_state_dict(state)
        network = folded(network.eval())
        self._crop = spec.crop
        self._table = table(spec)
        self.precision = self._fastest(network) if precision is Precision.AUTO else precision
        self._use(network, self.precision)

    def logits(self, crops: Pixels) -> NDArray[np.float32]:
        """Logits of uint8 crops (n, crop, crop, 3): float32 (n, classes)."""
        with torch.inference_mode():
            features = self._features(self.normalised(crops).to(self._dtype))
            return np.asarray(self._head(features.float()))

    def normalised(self, crops: Pixels) -> Tensor:
        """The network's input, float32 (n, 3, crop, crop), bit-equal to torchvision's transform."""
        n, height, width, channels = crops.shape
        found = cv2.LUT(crops.reshape(n * height, width, channels), self._table)
        return torch.from_numpy(found).view(crops.shape).permute(0, 3, 1, 2)

    def _use(self, folded: Network, precision: Precision) -> None:
        """Convolutions in `precision`; the last layer stays fp32, where it costs nothing."""
        network = copy.deepcopy(folded)
        self._dtype, self._head = DTYPES[precision], network.fc
        network.fc = nn.Flatten()
        network.to(self._dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._features = FusedFeatures(network) if supports(self._dtype) else network

    def _fastest(self, folded: Network) -> Precision:
        """fp32, or bf16 where this CPU computes it at least a quarter faster.

        fp16 is no candidate: on a CPU it is at best as fast, and it overflows where bf16 does not.
        """
        seconds = {p: self._time(folded, p) for p in (Precision.FP32, Precision.BF16)}
        faster = seconds[Precision.BF16] < 0.8 * seconds[Precision.FP32]
        return Precision.BF16 if faster else Precision.FP32

    def _time(self, folded: Network, precision: Precision) -> float:
        """The best of three forward passes of eight images, in seconds, after one to warm up."""
        self._use(folded, precision)
        crops = np.zeros((8, self._crop, self._crop, 3), np.uint8)
        runs = []
        for _ in range(4):
            start = time.perf_counter()
            self.logits(crops)
            runs.append(time.perf_counter() - start)
        return min(runs[1:])


def table(spec: Preprocessing) -> NDArray[np.float32]:
    """(1, 256, 3): what torchvision's transform makes of every level of every channel."""
    levels = torch.arange(256, dtype=torch.float32).view(1, 256, 1).div_(255)
    return (levels - torch.tensor(spec.mean)).div_(torch.tensor(spec.std)).numpy()


def folded(network: Network) -> Network:
    """The same function with every batch norm folded into the convolution before it."""
    for module in list(network.modules()):
        children = list(module.named_children())
        for (conv_name, conv), (norm_name, norm) in pairwise(children):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(module, norm_name, nn.Identity())
    return network
