"""All networks by name, in the order in which they are listed, with torchvision's weights.

Source of the residual networks: He, Zhang, Ren and Sun, "Deep Residual Learning for Image
Recognition", table 1, https://arxiv.org/abs/1512.03385.
"""

from pathlib import Path

from models.networks.spec import Builder, Bundled, NetworkSpec, Preprocessing, PublishedWeights

BUNDLED = Bundled(
    name="bundled",
    path=Path(__file__).parents[1] / "weights" / "resnet18-imagenette10.safetensors",
    sha256="b494f778af3f9cfd5a551378594c44c50767bf9e99a530ac08daa896f53c7c4d",
    label_set="imagenette10",
)


def _residual(
    name: str,
    block: str,
    depths: tuple[int, int, int, int],
    *,
    features: int,
    weights: str,
    size: int,
    sha256: str,
    resize: int = 256,
    bundled: Bundled | None = None,
) -> NetworkSpec:
    """Return a residual network with its published ImageNet weights of `size` bytes."""
    filename = f"{name}-{sha256[:8]}.pth"
    url = f"https://download.pytorch.org/models/{filename}"
    return NetworkSpec(
        name=name,
        build=Builder(
            "workers.engines.residual_network.ResidualNetwork", {"block": block, "depths": depths}
        ),
        preprocessing=Preprocessing(
            resize, crop=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), version=1
        ),
        label_set="imagenet1k",
        weights=(PublishedWeights(name, weights, url, filename, size, sha256, "imagenet1k"),),
        features=features,
        head="fc",
        bundled=bundled,
    )


RESNET18 = _residual(
    "resnet18",
    "basic",
    (2, 2, 2, 2),
    features=512,
    weights="imagenet1k_v1",
    size=46_830_571,
    sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    bundled=BUNDLED,
)

RESNET34 = _residual(
    "resnet34",
    "basic",
    (3, 4, 6, 3),
    features=512,
    weights="imagenet1k_v1",
    size=87_319_819,
    sha256="b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
)

RESNET50 = _residual(
    "resnet50",
    "bottleneck",
    (3, 4, 6, 3),
    features=2048,
    weights="imagenet1k_v2",
    size=102_540_417,
    sha256="11ad3fa62ca79e40addfd354a8ec4b7c75143b3038b8d2a807fbc68deab379ca",
    resize=232,  # the recipe of the second version
)
"""With the stride in the 3 × 3 convolution, as torchvision has it ("ResNet v1.5")."""

NETWORKS: dict[str, NetworkSpec] = {spec.name: spec for spec in (RESNET18, RESNET34, RESNET50)}

DEFAULT = RESNET18.name
"""The network that a server has when its settings name none."""


def qualified_name(published: PublishedWeights) -> str:
    """Return `network/name`, or `name` alone for weights of the default network."""
    same = published.network == DEFAULT
    return published.name if same else f"{published.network}/{published.name}"


CATALOGUE: dict[str, PublishedWeights] = {
    qualified_name(each): each for spec in NETWORKS.values() for each in spec.weights
}
"""All published weights by their qualified names."""
