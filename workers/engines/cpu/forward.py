"""Forward passes on CPU cores: each on one core, side by side, or a single one on all cores."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from models.domain.image import Pixels
from workers.engines.resnet18 import ResNet18


class ForwardPasses:
    """The forward passes of `network`; `threads` are the cores that one alone is spread over.

    The thread of single passes keeps its OpenMP team warm. The team belongs to the calling thread,
    so the passes of other threads stay on their own core.
    """

    def __init__(self, network: ResNet18, threads: int) -> None:
        self._network = network
        self._solo = ThreadPoolExecutor(1, "solo", torch.set_num_threads, (threads,))

    def on_all_cores(self, crops: Pixels) -> NDArray[np.float32]:
        """Logits of uint8 crops (n, crop, crop, 3): float32 (n, classes)."""
        return self._solo.submit(self._network.logits, crops).result()

    def on_this_core(self, crops: Pixels) -> NDArray[np.float32]:
        """The same, computed by the calling thread alone."""
        torch.set_num_threads(1)
        return self._network.logits(crops)

    def close(self) -> None:
        """End the thread of single passes."""
        self._solo.shutdown(wait=False)
