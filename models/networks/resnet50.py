"""ResNet50 with torchvision's default ImageNet weights, the second version.

Source: He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", table 1,
https://arxiv.org/abs/1512.03385, with the stride in the 3 × 3 convolution as torchvision has it
("ResNet v1.5"). The second version of the weights was trained by another recipe and expects images
whose shorter side is 232 pixels, not 256.
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

RESNET50 = NetworkSpec(
    name="resnet50",
    build=Builder(
        "workers.engines.residual_network.residual_network",
        {"block": "bottleneck", "depths": (3, 4, 6, 3)},
    ),
    preprocessing=Preprocessing(
        resize=232, crop=224, mean=IMAGENET_MEAN, std=IMAGENET_STD, version=1
    ),
    label_set="imagenet1k",
    weights=(
        PublishedWeights(
            network="resnet50",
            name="imagenet1k_v2",
            url="https://download.pytorch.org/models/resnet50-11ad3fa6.pth",
            filename="resnet50-11ad3fa6.pth",
            size=102_540_417,
            sha256="11ad3fa62ca79e40addfd354a8ec4b7c75143b3038b8d2a807fbc68deab379ca",
            label_set="imagenet1k",
        ),
    ),
    features=2048,
    speedups=frozenset(Speedup),
)
