"""A network that is not a residual network, as somebody outside this project would write one."""

import torch
from torch import Tensor, nn

from models.networks.spec import Builder, NetworkSpec, Preprocessing, PublishedWeights

SIDE = 32

TINY = NetworkSpec(
    name="tiny",
    build=Builder("tests.tiny_network.tiny_network", {"width": 6}),
    preprocessing=Preprocessing(40, SIDE, (0.5, 0.5, 0.5), (0.25, 0.5, 0.25), 3),
    label_set="imagenette10",
    weights=(PublishedWeights("tiny", "v1", "https://example.org/t.pth", "t.pth", 1, "0", "x"),),
    features=6,
    head="classifier",
)


class TinyNetwork(nn.Module):
    """One convolution, a mean over the image, and a last layer called `classifier`."""

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, width, 5, 4)
        self.classifier: nn.Module = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classifier(torch.tanh(self.convolution(x)).mean((2, 3)))
        return found


def tiny_network(*, width: int, n_classes: int) -> TinyNetwork:
    """Return a network with one convolution of `width` channels."""
    return TinyNetwork(width, n_classes)
