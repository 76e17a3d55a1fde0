"""A network on the CPU: a state dict and a precision in, logits or features out.

Jobs and labels are the engine's business.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import cast

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.domain.image import Pixels
from models.networks.spec import NetworkSpec
from models.settings import Precision
from workers.engines.builder import (
    DTYPES,
    loaded,
    normalisation_table,
    on_one_thread,
    take_head,
)
from workers.engines.cpu.engine import Crops
from workers.engines.residual_network import Block, ResidualNetwork

# Forward passes on CPU cores: each on one core, side by side, or a single one on all cores.

Forward = Callable[[Crops], NDArray[np.float32]]
"""A forward pass: it maps crops to float32 (n, values)."""


class ForwardPasses:
    """Runs forward passes of any network; `threads` cores share a pass that runs alone.

    The thread of single passes keeps its OpenMP team warm. The team belongs to the calling thread,
    so the passes of further threads stay on their own core. All networks share that thread: every
    team would otherwise keep threads of its own.
    """

    def __init__(self, threads: int) -> None:
        self._solo = ThreadPoolExecutor(1, "solo", torch.set_num_threads, (threads,))

    def on_all_cores(self, forward: Forward, crops: Crops) -> NDArray[np.float32]:
        """Run the pass on all cores."""
        return self._solo.submit(forward, crops).result()

    def on_this_core(self, forward: Forward, crops: Crops) -> NDArray[np.float32]:
        """Run the pass in the calling thread alone."""
        torch.set_num_threads(1)
        return forward(crops)

    def side_by_side(self, forward: Forward, crops: Crops, threads: int) -> None:
        """Run the pass on new threads at the same time, so that their memory is allocated."""
        with ThreadPoolExecutor(threads) as pool:
            together = Barrier(threads)

            def run() -> None:
                together.wait()
                self.on_this_core(forward, crops)

            for each in [pool.submit(run) for _ in range(threads)]:
                each.result()

    def close(self) -> None:
        """End the thread of single passes."""
        self._solo.shutdown(wait=False)


# The convolutions of residual networks as oneDNN runs them best on a CPU. Weights are laid out
# once, and ReLU and the residual sum happen inside the convolution. These are the operators
# torch.compile emits for frozen weights on a CPU (torch/_inductor/fx_passes/ mkldnn_fusion.py);
# called by name they need neither a compiler nor half a minute at the start.

_MKLDNN = torch.ops.mkldnn


def supports(dtype: torch.dtype) -> bool:
    """Return whether this build of torch has the operators for `dtype` on this CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype is torch.bfloat16:
        return bool(_MKLDNN._is_mkldnn_bf16_supported())
    return dtype is torch.float32 or bool(_MKLDNN._is_mkldnn_fp16_supported())


class FusedFeatures:
    """A residual network without its last layer: (n, 3, side, side) to (n, features).

    The module must be channels last, with its batch norms folded.
    """

    def __init__(self, network: ResidualNetwork, side: int) -> None:
        self._stem = _Convolution(network.conv1, side)
        side = (self._stem.side_after - 1) // 2 + 1  # of the pooling
        self._blocks = []
        for layer in (network.layer1, network.layer2, network.layer3, network.layer4):
            for block in layer:
                self._blocks.append(_Block(cast(Block, block), side))
                side = self._blocks[-1].side_after

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the features of a batch."""
        x = self._stem(batch, "relu")
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for block in self._blocks:
            x = block(x)
        return x.mean((2, 3))


class _Block:
    """All convolutions but the last in order, the last added to the shortcut."""

    def __init__(self, block: Block, side: int) -> None:
        shortcut = None if block.downsample is None else cast(nn.Conv2d, block.downsample[0])
        self._shortcut = None if shortcut is None else _Convolution(shortcut, side)
        self._first: list[_Convolution] = []
        for each in block.convolutions():
            self._first.append(_Convolution(each, side))
            side = self._first[-1].side_after
        self._last, self.side_after = self._first.pop(), side

    def __call__(self, x: Tensor) -> Tensor:
        inner = x
        for convolution in self._first:
            inner = convolution(inner, "relu")
        residual = x if self._shortcut is None else self._shortcut(x, "none")
        return self._last.onto(residual, inner)


class _Convolution:
    """A convolution of square inputs of `side` pixels, with its weights laid out for them.

    oneDNN compares the layout with its wanted layout in each pass, and converts the weights if they
    differ. With AVX-512 a single layout serves all sizes, and is the layout of an unknown size.
    With AVX2 the wanted layout depends on the side, but not on the number of images.
    """

    def __init__(self, conv: nn.Conv2d, side: int) -> None:
        assert conv.bias is not None
        geometry = (conv.padding, conv.stride, conv.dilation, conv.groups)
        old = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
        known = (1, conv.in_channels, side, side) if old else None
        weight = _MKLDNN._reorder_convolution_weight(conv.weight.detach(), *geometry, known)
        padding = cast(tuple[int, int], conv.padding)[0]
        self.side_after = (side + 2 * padding - conv.kernel_size[0]) // conv.stride[0] + 1
        self._arguments: Sequence[object] = (weight, conv.bias.detach(), *geometry)

    def __call__(self, x: Tensor, activation: str) -> Tensor:
        result: Tensor = _MKLDNN._convolution_pointwise(x, *self._arguments, activation, [], "")
        return result

    def onto(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return relu(residual + conv(x)), written over `residual`."""
        written: Tensor = _MKLDNN._convolution_pointwise_.binary(
            residual, x, *self._arguments, "add", 1.0, "relu", [], None
        )
        return written


class CpuNetwork:
    """The network of `spec` with the weights of `state`, channels last, in `precision`."""

    def __init__(
        self, state: Mapping[str, Tensor], precision: Precision, spec: NetworkSpec
    ) -> None:
        self.spec = spec
        self.precision = _fastest() if precision is Precision.AUTO else precision
        self._dtype = DTYPES[self.precision]
        self._table = normalisation_table(spec.preprocessing)
        network = loaded(spec, state)
        # The last layer stays fp32, where it costs nothing: that saves most of the rounding of the
        # scores.
        self._head = take_head(spec, network, nn.Flatten())
        self._features: Callable[[Tensor], Tensor] = network
        layout = torch.channels_last
        with on_one_thread():
            network.to(self._dtype).to(memory_format=layout)  # type: ignore[call-overload]  # no stub
            if isinstance(network, ResidualNetwork) and supports(self._dtype):
                self._features = FusedFeatures(network, spec.preprocessing.crop)

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

        It is bit-equal to the result of torchvision's transform.
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


def _fastest() -> Precision:
    """Return bf16 on a CPU with instructions for it (AMX, AVX-512 BF16), else fp32.

    Elsewhere bf16 is emulated. fp16 is no candidate: on a CPU it is at best as fast, and it
    overflows where bf16 does not.
    """
    return Precision.BF16 if any(bf16_instructions().values()) else Precision.FP32


def bf16_instructions() -> dict[str, bool]:
    """Return whether this CPU has each kind of instructions that make bf16 fast."""
    return {
        "AMX": torch.cpu._is_amx_tile_supported(),
        "AVX-512 BF16": torch.cpu._is_avx512_bf16_supported(),
    }
