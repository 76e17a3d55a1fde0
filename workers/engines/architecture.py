"""The layers of ResNet18 as torch modules, under the names that torchvision gives them.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", table 1,
https://arxiv.org/abs/1512.03385. torchvision has the same network, but importing it imports its
detection models and torch's compiler too: 1.1 s of CPU time at every start of a worker.
"""

from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512)
"""Channels of the four layers; each but the first halves height and width."""


class Block(nn.Module):
    """Two 3 × 3 convolutions beside a shortcut, which has a convolution where the shape changes."""

    def __init__(
        self, n_in: int, n_out: int, stride: int, downsample: nn.Sequential | None
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """(n, in, h, w) to (n, out, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(inner))
        out += shortcut
        found: Tensor = self.relu(out)
        return found


class Network(nn.Module):
    """(n, 3, h, w) to logits (n, classes). Fresh weights are those torchvision would draw."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _layer(WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = _layer(WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = _layer(WIDTHS[1], WIDTHS[2], 2)
        self.layer4 = _layer(WIDTHS[2], WIDTHS[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc: nn.Module = nn.Linear(WIDTHS[3], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        found: Tensor = self.fc(self.avgpool(x).flatten(1))
        return found


def _layer(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    downsample = None
    if stride != 1 or n_in != n_out:
        halved = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
        downsample = nn.Sequential(halved, nn.BatchNorm2d(n_out))
    return nn.Sequential(Block(n_in, n_out, stride, downsample), Block(n_out, n_out, 1, None))
