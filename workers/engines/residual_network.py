"""Residual networks as torch modules, under the names that torchvision gives their parts.

Source: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", table 1,
https://arxiv.org/abs/1512.03385. torchvision has the same networks, but importing it also imports
its detection models and torch's compiler, which takes 1.1 s of CPU time at every start of a worker.
"""

from collections.abc import Sequence

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)
"""Channels inside the blocks of the four layers; each but the first halves height and width."""


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions beside a shortcut, which has a convolution where the shape changes."""

    expansion = 1

    def __init__(
        self, n_in: int, width: int, stride: int, downsample: nn.Sequential | None
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, in, h, w) to (n, width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(inner))
        out += shortcut
        found: Tensor = self.relu(out)
        return found


class BottleneckBlock(nn.Module):
    """Convolutions of 1 × 1, 3 × 3 and 1 × 1 beside a shortcut.

    The first reduces the channels to `width`, the last expands them to 4 · `width`. The stride is
    in the 3 × 3 convolution, as torchvision has it; the paper has it in the first 1 × 1.
    """

    expansion = 4

    def __init__(
        self, n_in: int, width: int, stride: int, downsample: nn.Sequential | None
    ) -> None:
        super().__init__()
        n_out = width * self.expansion
        self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, n_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, in, h, w) to (n, 4 · width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        out = self.bn3(self.conv3(inner))
        out += shortcut
        found: Tensor = self.relu(out)
        return found


Block = BasicBlock | BottleneckBlock
BLOCKS: dict[str, type[BasicBlock] | type[BottleneckBlock]] = {
    "basic": BasicBlock,
    "bottleneck": BottleneckBlock,
}


class ResidualNetwork(nn.Module):
    """Map (n, 3, h, w) to logits (n, classes); fresh weights equal torchvision's."""

    def __init__(
        self, block: type[BasicBlock] | type[BottleneckBlock], depths: Sequence[int], n_classes: int
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        outs = [width * block.expansion for width in WIDTHS]
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


def residual_network(*, block: str, depths: Sequence[int], n_classes: int) -> ResidualNetwork:
    """Build a network of `depths` blocks in its four layers; `block` is a key of `BLOCKS`."""
    return ResidualNetwork(BLOCKS[block], depths, n_classes)


def _layer(
    block: type[BasicBlock] | type[BottleneckBlock], n_in: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    n_out = width * block.expansion
    downsample = None
    if stride != 1 or n_in != n_out:
        halved = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        downsample = nn.Sequential(halved, nn.BatchNorm2d(n_out))
    first = block(n_in, width, stride, downsample)
    return nn.Sequential(first, *(block(n_out, width, 1, None) for _ in range(depth - 1)))
