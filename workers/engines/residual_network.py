"""Residual networks as torch modules, under the names that torchvision gives their parts.

Source: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", table 1,
https://arxiv.org/abs/1512.03385. torchvision has the same networks, but importing it also imports
its detection models and torch's compiler, which takes 1.1 s of CPU time at every start of a worker.
"""

from collections.abc import Sequence

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)
"""Channels inside the blocks of the four layers; each but the first halves height and width."""

BLOCKS: dict[str, tuple[tuple[int, int], ...]] = {
    "basic": ((3, 1), (3, 1)),
    "bottleneck": ((1, 1), (3, 1), (1, 4)),
}
"""The convolutions of each kind of block: the side of the window, and how many times the width of
the block it has as channels. The first window of 3 × 3 has the stride, as torchvision has it; in
the paper the first window of 1 × 1 has it."""


class Block(nn.Module):
    """Convolutions beside a shortcut, which has a convolution where the shape changes."""

    def __init__(
        self, kind: str, n_in: int, width: int, stride: int, downsample: nn.Sequential | None
    ) -> None:
        super().__init__()
        self._count = len(BLOCKS[kind])
        for number, (side, factor) in enumerate(BLOCKS[kind], 1):
            own, stride = (stride, 1) if side == 3 else (1, stride)
            convolution = nn.Conv2d(n_in, factor * width, side, own, side // 2, bias=False)
            n_in = convolution.out_channels
            self.add_module(f"conv{number}", convolution)
            self.add_module(f"bn{number}", nn.BatchNorm2d(n_in))
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def convolutions(self) -> list[nn.Conv2d]:
        """Return the convolutions in order, without that of the shortcut."""
        return [getattr(self, f"conv{number + 1}") for number in range(self._count)]

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, in, h, w) to (n, channels of the last convolution, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        for number, convolution in enumerate(self.convolutions(), 1):
            x = getattr(self, f"bn{number}")(convolution(x))
            if number == self._count:
                x += shortcut
            x = self.relu(x)
        return x


class ResidualNetwork(nn.Module):
    """Map (n, 3, h, w) to logits (n, classes); fresh weights equal torchvision's.

    The four layers have `depths` blocks; `block` is a key of `BLOCKS`.
    """

    def __init__(self, block: str, depths: Sequence[int], n_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        outs = [width * BLOCKS[block][-1][1] for width in WIDTHS]
        self.layer1 = _layer(block, WIDTHS[0], WIDTHS[0], depths[0], 1)
        self.layer2 = _layer(block, outs[0], WIDTHS[1], depths[1], 2)
        self.layer3 = _layer(block, outs[1], WIDTHS[2], depths[2], 2)
        self.layer4 = _layer(block, outs[2], WIDTHS[3], depths[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc: nn.Module = nn.Linear(outs[3], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        found: Tensor = self.fc(self.avgpool(x).flatten(1))
        return found


def _layer(block: str, n_in: int, width: int, depth: int, stride: int) -> nn.Sequential:
    n_out = width * BLOCKS[block][-1][1]
    downsample = None
    if stride != 1 or n_in != n_out:
        halved = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        downsample = nn.Sequential(halved, nn.BatchNorm2d(n_out))
    first = Block(block, n_in, width, stride, downsample)
    return nn.Sequential(first, *(Block(block, n_out, width, 1, None) for _ in range(depth - 1)))
