"""ResNet18 on a GPU: one CUDA graph a batch size, from the network's input to sorted scores.

Knows no jobs and no labels.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from models.settings import Optimize, Precision
from models.weights import Preprocessing
from workers.engines.architecture import Network
from workers.engines.cuda.crops import input_buffer
from workers.engines.resnet18 import DTYPES, folded, table

log = logging.getLogger("darkroom.network")

LOGITS, CLASSES, SOFTMAX = 0, 1, 2
"""What `GraphedResNet18.scores` holds of every image, best class first; classes as float32."""

MAX_AUTOTUNE = "max-autotune-no-cudagraphs"
"""Kernels are timed for every batch size, which must not become a variable; graphs are ours."""

ROUNDS = 3
"""Runs before a capture: algorithms are chosen, memory is taken."""


class GraphedResNet18:
    """torchvision's resnet18 with folded batch norms, channels last, in half precision by default.

    `input` is (max_batch_size, 3, crop, crop), to be filled by the caller; `scores` is float32
    (max_batch_size, 3, classes). Both belong to whoever runs on the compute stream.
    """

    def __init__(
        self,
        state: Mapping[str, Tensor],
        precision: Precision,
        spec: Preprocessing,
        max_batch_size: int,
        device: str,
        optimize: Optimize = Optimize.DEFAULT,
    ) -> None:
        self.precision = Precision.FP16 if precision is Precision.AUTO else precision
        dtype = DTYPES[self.precision]
        network = Network(state["fc.weight"].shape[0])
        network.load_state_dict(state)
        network = folded(network.eval())
        self._head = cast(nn.Linear, network.fc).to(device)
        network.fc = nn.Identity()
        self._features: Callable[[Tensor], Tensor] = network.to(  # type: ignore[call-overload]
            device, dtype, memory_format=torch.channels_last
        )
        self._optimize = optimize
        if optimize is Optimize.MAX:
            torch._dynamo.config.recompile_limit = 64
            self._features = torch.compile(network, mode=MAX_AUTOTUNE, dynamic=False)
        self.n_classes = self._head.out_features
        self.input = input_buffer(max_batch_size, spec, dtype, device)
        self.scores = torch.zeros((max_batch_size, 3, self.n_classes), device=device)
        self.table = torch.from_numpy(table(spec)[0]).to(device, dtype).contiguous()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def capture(self, stream: torch.cuda.Stream, batch_sizes: Sequence[int] = ()) -> None:
        """Make a graph for each batch size, by default `sizes`, to be run on `stream`.

        Before serving, because a capture stands no neighbour.
        """
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        started, pool = time.monotonic(), None
        for size in batch_sizes or sizes(len(self.input)):
            with torch.inference_mode(), torch.cuda.stream(stream):
                for _ in range(ROUNDS):
                    self._run(size)
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    self._run(size)
            pool = pool or graph.pool()
            self._graphs[size] = graph
        seconds = time.monotonic() - started
        said = "captured %d batch sizes in %.1f s (optimize: %s)"
        log.info(said, len(self._graphs), seconds, self._optimize.value)

    def run(self, n: int) -> None:
        """Scores of the first `n` inputs, on the current stream."""
        self._graphs[min(size for size in self._graphs if size >= n)].replay()

    def _run(self, size: int) -> None:
        logits = self._head(self._features(self.input[:size]).float())
        best, classes = logits.sort(dim=1, descending=True, stable=True)
        scores = self.scores[:size]
        scores[:, LOGITS] = best
        scores[:, CLASSES] = classes.float()
        scores[:, SOFTMAX] = best.softmax(1)


def sizes(largest: int) -> list[int]:
    """The batch sizes with a graph of their own: powers of two, and the largest."""
    powers = [1 << n for n in range(largest.bit_length()) if 1 << n < largest]
    return [*powers, largest]
