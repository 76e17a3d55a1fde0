"""A network on a GPU: a CUDA graph for each batch size, from the network's input to sorted scores
and the inputs of the last layer.

Jobs and labels are the engine's business.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from models.networks.spec import NetworkSpec
from models.settings import Optimize, Precision
from workers.engines.builder import DTYPES, loaded, normalisation_table, take_head

log = logging.getLogger("darkroom.network")

LOGITS, CLASSES, SOFTMAX = 0, 1, 2
"""The rows of `GraphedNetwork.scores` for an image, best class first; classes as float32."""

MAX_AUTOTUNE = "max-autotune-no-cudagraphs"
"""Kernels are timed for every batch size, which must not become a variable; graphs are ours."""

TUNED_FROM = 32
"""The smallest batch for which cuDNN times its algorithms before one is chosen.

Timing takes 0.3 s of the start for every batch size. It gains 5 % for batches of 32 and 64 and
nothing for smaller ones, 0.27 to 0.55 ms with and without (ResNet18 on an H200).
"""

ROUNDS = 3
"""Runs before a capture: algorithms are chosen, memory is taken."""


class GraphedNetwork:
    """The network of `spec` with the weights of `state`, channels last.

    `precision` is half precision unless the settings ask for another precision. `input` is
    (max_batch_size, 3, crop, crop) and is filled by the caller. `scores` is float32
    (max_batch_size, 3, classes), `vectors` float32 (max_batch_size, features). All three belong to
    the batch that runs on the compute stream. With `full_batches` all batches are computed as a
    batch of the largest size, by the algorithms that cuDNN chooses without timing them: so the bits
    of a score depend neither on the batch nor on the process that computes it.
    """

    def __init__(
        self,
        state: Mapping[str, Tensor],
        precision: Precision,
        spec: NetworkSpec,
        max_batch_size: int,
        device: str,
        optimize: Optimize = Optimize.DEFAULT,
        *,
        full_batches: bool = False,
    ) -> None:
        self.spec = spec
        self.precision = Precision.FP16 if precision is Precision.AUTO else precision
        dtype = DTYPES[self.precision]
        network = loaded(spec, state)
        self._head = take_head(spec, network, nn.Identity()).to(device)
        self._features: Callable[[Tensor], Tensor] = network.to(  # type: ignore[call-overload]  # torch's stubs lack it
            device, dtype, memory_format=torch.channels_last
        )
        self._optimize = optimize
        if optimize is Optimize.MAX:
            torch._dynamo.config.recompile_limit = 64
            self._features = torch.compile(network, mode=MAX_AUTOTUNE, dynamic=False)
        self.n_classes = self._head.out_features
        lying = (max_batch_size, spec.preprocessing.crop, spec.preprocessing.crop, 3)
        self.input = torch.zeros(lying, dtype=dtype, device=device).permute(0, 3, 1, 2)
        self.scores = torch.zeros((max_batch_size, 3, self.n_classes), device=device)
        self.vectors = torch.zeros((max_batch_size, spec.features), device=device)
        table = normalisation_table(spec.preprocessing)[0]
        self.table = torch.from_numpy(table).to(device, dtype).contiguous()
        self._sizes = [max_batch_size] if full_batches else sizes(max_batch_size)
        self._times_algorithms = not full_batches
        self._pool: Any = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def capture(self, stream: torch.cuda.Stream) -> None:
        """Make a graph for each batch size, to be run on `stream`.

        Nothing else may use the device from this process meanwhile: a capture fails when a thread
        allocates.
        """
        torch.backends.cudnn.allow_tf32 = False
        started = time.monotonic()
        for size in self._sizes:
            with torch.inference_mode(), torch.cuda.stream(stream):
                for _ in range(ROUNDS):
                    self._run(size)
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, self._pool, stream, "thread_local"):
                    self._run(size)
            # All graphs share one pool of memory, because the compute stream runs one of them at a
            # time.
            self._pool = self._pool or graph.pool()
            self._graphs[size] = graph
        seconds = time.monotonic() - started
        message = "captured %d batch sizes of %s in %.1f s (optimize: %s)"
        log.info(message, len(self._graphs), self.spec.name, seconds, self._optimize.value)

    def run(self, n: int) -> None:
        """Compute the scores and vectors of the first `n` inputs, on the current stream."""
        # The surplus inputs are images of earlier batches; nothing reads their scores.
        self._graphs[min(size for size in self._sizes if size >= n)].replay()

    def _run(self, size: int) -> None:
        # Set each time, because cuDNN times its algorithms when it first sees a batch size.
        timed = size >= TUNED_FROM or self._optimize is Optimize.MAX
        torch.backends.cudnn.benchmark = timed and self._times_algorithms
        vectors = self.vectors[:size]
        vectors.copy_(self._features(self.input[:size]))
        logits = self._head(vectors)
        best, classes = logits.sort(dim=1, descending=True, stable=True)
        scores = self.scores[:size]
        scores[:, LOGITS] = best
        scores[:, CLASSES] = classes.float()
        scores[:, SOFTMAX] = best.softmax(1)


def sizes(largest: int) -> list[int]:
    """Return the batch sizes with a graph of their own: powers of two, and the largest."""
    powers = [1 << n for n in range(largest.bit_length()) if 1 << n < largest]
    return [*powers, largest]


def make_context(device: str) -> None:
    """Make torch's context on a device, which its first use would make; raises RuntimeError."""
    torch.zeros(1, device=device)
