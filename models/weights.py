"""What each network expects: its weights file by full digest, its labels, its preprocessing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """A weights file others publish, pinned by size and sha256."""

    name: str
    url: str
    filename: str
    size: int
    sha256: str
    label_set: str


CATALOGUE = {
    w.name: w
    for w in (
        PublishedWeights(
            name="imagenet1k_v1",
            url="https://download.pytorch.org/models/resnet18-f37072fd.pth",
            filename="resnet18-f37072fd.pth",
            size=46_830_571,
            sha256="f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
            label_set="imagenet1k",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """torchvision's ImageClassification preset; sizes in pixels, mean and std of 0…1 RGB."""

    resize: int
    crop: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    version: int


RESNET18_PREPROCESSING = Preprocessing(
    resize=256, crop=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), version=1
)
