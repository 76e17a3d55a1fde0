"""The convolutions of residual networks as oneDNN runs them best on a CPU.

Weights are laid out once, and ReLU and the residual sum happen inside the convolution. These are
the operators torch.compile emits for frozen weights on a CPU (torch/_inductor/fx_passes/
mkldnn_fusion.py); called by name they need neither a compiler nor half a minute at the start.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from workers.engines.residual_network import Block, BottleneckBlock, ResidualNetwork

_MKLDNN = torch.ops.mkldnn


def supports(dtype: torch.dtype) -> bool:
    """Return whether this build of torch has the operators for `dtype` on this CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype is torch.bfloat16:
        return bool(_MKLDNN._is_mkldnn_bf16_supported())
    return dtype is torch.float32 or bool(_MKLDNN._is_mkldnn_fp16_supported())


def _one_layout() -> bool:
    return torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "AVX2")


class FusedFeatures:
    """A residual network without its last layer: (n, 3, side, side) to (n, features).

    The module must be channels last, with its batch norms folded.
    """

    def __init__(self, network: nn.Module, side: int) -> None:
        if not isinstance(network, ResidualNetwork):
            raise TypeError(f"only residual networks can be fused, not {type(network).__name__}")
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
    """All convolutions but the last one in order, the last one added to the shortcut."""

    def __init__(self, block: Block, side: int) -> None:
        shortcut = None if block.downsample is None else cast(nn.Conv2d, block.downsample[0])
        self._shortcut = None if shortcut is None else _Convolution(shortcut, side)
        convolutions = [block.conv1, block.conv2]
        if isinstance(block, BottleneckBlock):
            convolutions.append(block.conv3)
        self._first: list[_Convolution] = []
        for each in convolutions:
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

    oneDNN compares the layout with the one that it wants in each pass, and converts the weights if
    they differ. With AVX-512 one layout serves all sizes, and is the one of an unknown size. With
    AVX2 the wanted layout depends on the side, but not on the number of images.
    """

    def __init__(self, conv: nn.Conv2d, side: int) -> None:
        assert conv.bias is not None
        geometry = (conv.padding, conv.stride, conv.dilation, conv.groups)
        known = None if _one_layout() else (1, conv.in_channels, side, side)
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
