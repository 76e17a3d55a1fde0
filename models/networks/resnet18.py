"""ResNet18, the default network, with torchvision's ImageNet weights or ten bundled classes.

Source: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", table 1,
https://arxiv.org/abs/1512.03385.
"""

from pathlib import Path

from models.networks.spec import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Builder,
    Bundled,
    NetworkSpec,
    Preprocessing,
    PublishedWeights,
    Speedup,
)

BUNDLED = Bundled(
    name="bundled",
    path=Path(__file__).parents[1] / "weights" / "resnet18-imagenette10.safetensors",
    sha256="b494f778af3f9cfd5a551378594c44c50767bf9e99a530ac08daa896f53c7c4d",
    label_set="imagenette10",
)

RESNET18 = NetworkSpec(
    name="resnet18",
    build=Builder(
        "workers.engines.residual_network.residual_network",
        {"block": "basic", "depths": (2, 2, 2, 2)},
    ),
    preprocessing=Preprocessing(
        resize=256, crop=224, mean=IMAGENET_MEAN, std=IMAGENET_STD, version=1
    ),
    label_set="imagenet1k",
    weights=(
        PublishedWeights(
            network="resnet18",
            name="imagenet1k_v1",
            url="https://download.pytorch.org/models/resnet18-f37072fd.pth",
            filename="resnet18-f37072fd.pth",
            size=46_830_571,
            sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
            label_set="imagenet1k",
        ),
    ),
    features=512,
    bundled=BUNDLED,
    speedups=frozenset(Speedup),
)
