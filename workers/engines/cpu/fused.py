"""ResNet18's convolutions as oneDNN runs them best on a CPU.

Weights are laid out once, and ReLU and the residual sum happen inside the convolution. These are
the operators torch.compile emits for frozen weights on a CPU (torch/_inductor/fx_passes/
mkldnn_fusion.py); called by name they need neither a compiler nor half a minute at the start.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from workers.engines.architecture import Block, Network

_MKLDNN = torch.ops.mkldnn


def supports(dtype: torch.dtype) -> bool:
    """Whether this build of torch has the operators for `dtype` on this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype is torch.bfloat16:
        return bool(_MKLDNN._is_mkldnn_bf16_supported())
    return dtype is torch.float32 or bool(_MKLDNN._is_mkldnn_fp16_supported())


class FusedFeatures:
    """A folded, channels-last resnet18 without its last layer: (n, 3, h, w) to (n, 512)."""

    def __init__(self, network: Network) -> None:
        self._stem = _Convolution(network.conv1)
        self._blocks = [
            _Block(cast(Block, block))
            for layer in (network.layer1, network.layer2, network.layer3, network.layer4)
            for block in layer
        ]

    def __call__(self, batch: Tensor) -> Tensor:
        """The features of a batch."""
        x = self._stem(batch, "relu")
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for block in self._blocks:
            x = block(x)
        return x.mean((2, 3))


class _Block:
    def __init__(self, block: Block) -> None:
        self._first, self._second = _Convolution(block.conv1), _Convolution(block.conv2)
        self._shortcut = (
            None if block.downsample is None else _Convolution(cast(nn.Conv2d, block.downsample[0]))
        )

    def __call__(self, x: Tensor) -> Tensor:
        inner = self._first(x, "relu")
        residual = x if self._shortcut is None else self._shortcut(x, "none")
        return self._second.onto(residual, inner)


class _Convolution:
    def __init__(self, conv: nn.Conv2d) -> None:
        assert conv.bias is not None
        geometry = (conv.padding, conv.stride, conv.dilation, conv.groups)
        weight = _MKLDNN._reorder_convolution_weight(conv.weight.detach(), *geometry, None)
        self._arguments: Sequence[object] = (weight, conv.bias.detach(), *geometry)

    def __call__(self, x: Tensor, activation: str) -> Tensor:
        result: Tensor = _MKLDNN._convolution_pointwise(x, *self._arguments, activation, [], "")
        return result

    def onto(self, residual: Tensor, x: Tensor) -> Tensor:
        """relu(residual + conv(x)), written over `residual`."""
        written: Tensor = _MKLDNN._convolution_pointwise_.binary(
            residual, x, *self._arguments, "add", 1.0, "relu", [], None
        )
        return written
