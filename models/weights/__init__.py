"""What each network expects (its weights file by full digest, its labels, its preprocessing), and
what the setting `weights` asks for. Touches no disk and no network.

The bundled weights lie beside this file; their model card is README.md.
"""

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from models.settings import Settings

SUFFIXES = (".pth", ".safetensors")


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
class Bundled:
    """The weights that ship with Darkroom, pinned like all others."""

    name: str
    path: Path
    sha256: str
    label_set: str


BUNDLED = Bundled(
    name="bundled",
    path=Path(__file__).with_name("resnet18-imagenette10.safetensors"),
    sha256="b494f778af3f9cfd5a551378594c44c50767bf9e99a530ac08daa896f53c7c4d",
    label_set="imagenette10",
)


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


@dataclass(frozen=True, slots=True)
class Published:
    """Weights of the catalogue."""

    published: PublishedWeights


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A weights file of the operator's own; `sha256` is the digest it must have, if one was set."""

    path: Path
    labels_path: Path
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Random:
    """Untrained weights, the same for the same seed; its answers must say so."""

    seed: int


@dataclass(frozen=True, slots=True)
class Auto:
    """`preferred` when it is in the cache or can be fetched, else `fallback`, with a warning."""

    preferred: Published
    fallback: Bundled


WeightsSource = Auto | Bundled | Published | LocalFile | Random

AUTO = Auto(Published(CATALOGUE["imagenet1k_v1"]), BUNDLED)


def resolve(settings: Settings) -> WeightsSource:
    """What the settings ask for, without touching a disk; ValueError lists the choices."""
    asked, labels, sha256 = settings.weights, settings.weights_labels, settings.weights_sha256
    path = Path(os.path.expanduser(asked))
    named: dict[str, WeightsSource] = {"auto": AUTO, BUNDLED.name: BUNDLED}
    named |= {name: Published(published) for name, published in CATALOGUE.items()}
    if random := re.fullmatch(r"random(?::(\d{1,18}))?", asked):
        named[asked] = Random(int(random[1] or 0))
    if asked in named:
        if labels or sha256:
            raise ValueError(
                f"weights {asked!r} bring their own labels and digest: DARKROOM_WEIGHTS_LABELS and "
                "DARKROOM_WEIGHTS_SHA256 belong to a weights file, unset them"
            )
        return named[asked]
    if path.suffix.lower() not in SUFFIXES:
        close = difflib.get_close_matches(asked, [*named, "random"], n=1)
        raise ValueError(
            f"no weights {asked!r}{f' (did you mean {close[0]!r}?)' if close else ''}: there are "
            f"{', '.join(named)}, random, random:SEED and files named *{', *'.join(SUFFIXES)}"
        )
    if labels is None:
        raise ValueError(
            f"the weights file {path} needs labels, which cannot be guessed: set "
            "DARKROOM_WEIGHTS_LABELS to a JSON list, or a text with one label a line"
        )
    return LocalFile(path, Path(os.path.expanduser(labels)), sha256)
