"""A network on the CPU: a state dict and a precision in, logits or features out.

Jobs and labels are the engine's business.
"""

import copy
import time
from collections.abc import Callable, Mapping
from typing import cast

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.domain.image import Pixels
from models.networks.spec import NetworkSpec, Speedup
from models.settings import Precision
from workers.engines.builder import (
    DTYPES,
    loaded,
    normalisation_table,
    on_one_thread,
    take_head,
)
from workers.engines.cpu.fused import FusedFeatures, supports
from workers.engines.cpu.slot import Crops


class CpuNetwork:
    """The network of `spec` with the weights of `state`, channels last, in `precision`."""

    def __init__(
        self, state: Mapping[str, Tensor], precision: Precision, spec: NetworkSpec
    ) -> None:
        self.spec = spec
        network = loaded(spec, state)
        self._crop = spec.preprocessing.crop
        self._table = normalisation_table(spec.preprocessing)
        self.precision = self._fastest(network) if precision is Precision.AUTO else precision
        self._use(network, self.precision)

    def logits(self, crops: Crops) -> NDArray[np.float32]:
        """Return the logits of uint8 crops (n, crop, crop, 3): float32 (n, classes).

        Crops may be normalised already, float32 (n, 3, crop, crop).
        """
        with torch.inference_mode():
            return np.asarray(self._head(self._features_of(crops)))

    def features(self, crops: Crops) -> NDArray[np.float32]:
        """Return the inputs of the last layer for the same crops: float32 (n, features)."""
        with torch.inference_mode():
            return np.asarray(self._features_of(crops))

    def normalised(self, crops: Pixels) -> Tensor:
        """Return the network's input, float32 (n, 3, crop, crop).

        It is bit-equal to what torchvision's transform gives.
        """
        n, height, width, channels = crops.shape
        found = cv2.LUT(crops.reshape(n * height, width, channels), self._table)
        return torch.from_numpy(found).view(crops.shape).permute(0, 3, 1, 2)

    def _features_of(self, crops: Crops) -> Tensor:
        return self._features(self._input(crops).to(self._dtype)).float()

    def _input(self, crops: Crops) -> Tensor:
        """Return the network's input in the layout that `normalised` gives it, channels last."""
        if crops.dtype == np.float32:
            return torch.from_numpy(crops).contiguous(memory_format=torch.channels_last)
        return self.normalised(cast(Pixels, crops))

    @on_one_thread()
    def _use(self, prepared: nn.Module, precision: Precision) -> None:
        """Compute convolutions in `precision`; the last layer stays fp32, where it costs nothing.

        Keeping it saves most of the rounding of the scores.
        """
        network = copy.deepcopy(prepared)
        self._dtype = DTYPES[precision]
        self._head = take_head(self.spec, network, nn.Flatten())
        layout = torch.channels_last
        network.to(self._dtype).to(memory_format=layout)  # type: ignore[call-overload]  # no stub
        fuses = Speedup.FUSED_CONVOLUTIONS in self.spec.speedups and supports(self._dtype)
        features = FusedFeatures(network, self._crop) if fuses else network
        self._features: Callable[[Tensor], Tensor] = features

    def _fastest(self, prepared: nn.Module) -> Precision:
        """Return fp32, or bf16 where this CPU computes it at least a quarter faster.

        fp16 is no candidate: on a CPU it is at best as fast, and it overflows where bf16 does not.
        """
        seconds = {p: self._time(prepared, p) for p in (Precision.FP32, Precision.BF16)}
        faster = seconds[Precision.BF16] < 0.8 * seconds[Precision.FP32]
        return Precision.BF16 if faster else Precision.FP32

    def _time(self, prepared: nn.Module, precision: Precision) -> float:
        """Return the best of three forward passes of eight images, in seconds, after a warm-up."""
        self._use(prepared, precision)
        crops = np.zeros((8, self._crop, self._crop, 3), np.uint8)
        runs = []
        for _ in range(4):
            start = time.perf_counter()
            self.logits(crops)
            runs.append(time.perf_counter() - start)
        return min(runs[1:])
