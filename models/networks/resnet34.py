"""ResNet34 with torchvision's ImageNet weights.

Source: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", table 1,
https://arxiv.org/abs/1512.03385.
"""

from models.networks.spec import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Builder,
    NetworkSpec,
    Preprocessing,
    PublishedWeights,
    Speedup,
)

RESNET34 = NetworkSpec(
    name="resnet34",
    build=Builder(
        "workers.engines.residual_network.residual_network",
        {"block": "basic", "depths": (3, 4, 6, 3)},
    ),
    preprocessing=Preprocessing(
        resize=256, crop=224, mean=IMAGENET_MEAN, std=IMAGENET_STD, version=1
    ),
    label_set="imagenet1k",
    weights=(
        PublishedWeights(
            network="resnet34",
            name="imagenet1k_v1",
            url="https://download.pytorch.org/models/resnet34-b627a593.pth",
            filename="resnet34-b627a593.pth",
            size=87_319_819,
            sha256="b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
            label_set="imagenet1k",
        ),
    ),
    features=512,
    speedups=frozenset(Speedup),
)
