"""The specification of a network: everything that the engines must know to serve it.

A specification is data. It names the function that builds the torch module, because `models` may
not import torch: `workers.engines.builder` imports that function when a network is loaded. A dotted
name was preferred to a table in the engines' room, because a new network then costs an entry in
`registry.py` alone, and no table has to be kept in step with the specifications.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from models.labels import LabelSet

EMBEDDING_SUFFIX = "_embedding"
"""Ends the name of the model of `/v2` whose output is the embedding of a network."""


class Interpolation(IntEnum):
    """A filter of Pillow's resize; its value is the filter's radius in pixels of the result."""

    BILINEAR = 1
    BICUBIC = 2


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The parameters of an evaluation transform, as torchvision and timm define it.

    `resize` is the length of the shorter side after the resize, or with `squash` of both sides, and
    `crop` is the side of the square that the network gets, in pixels. `mean` and `std` normalise
    RGB values of 0…1. `version` differs when the same image would give different values.
    """

    resize: int
    crop: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    version: int
    interpolation: Interpolation = Interpolation.BILINEAR
    squash: bool = False


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """A weights file that a third party publishes, pinned by its size in bytes and its SHA-256
    digest.

    `name` is the name of the weights among the weights of `network`.
    """

    network: str
    name: str
    url: str
    filename: str
    size: int
    sha256: str
    label_set: str


@dataclass(frozen=True, slots=True)
class Bundled:
    """A weights file that ships with Darkroom, pinned by its SHA-256 digest."""

    name: str
    path: Path
    sha256: str
    label_set: str


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a network of the operator's own.

    `weights` is None where the folder has no weights file, and `labels` where its configuration has
    no names. A network with 0 classes has an embedding alone.
    """

    path: Path
    weights: Path | None
    n_classes: int
    labels: LabelSet | None


@dataclass(frozen=True, slots=True)
class Builder:
    """The function that builds a network, by its dotted name, and its keyword arguments.

    The function also takes `n_classes`. It returns a torch module that maps a batch of crops,
    float (n, 3, crop, crop), to logits (n, n_classes). A GPU captures its forward pass in CUDA
    graphs.
    """

    function: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A network: its architecture, its input, its labels and its weights.

    Clients give `name` as `model`. `head` is the name of the module within the built module that is
    the last layer, a `Linear` of `features` inputs; its inputs are the embedding of an image. A
    network without classes has no `head`. `label_set` names the labels of untrained weights.
    `weights` are the published files, the default first, and `bundled` is used by `auto` where they
    cannot be had. A network in a `folder` has its weights and labels there, and `head` and
    `features` once `workers.engines.timm_network` has described it.
    """

    name: str
    build: Builder
    preprocessing: Preprocessing
    label_set: str = ""
    weights: tuple[PublishedWeights, ...] = ()
    features: int = 0
    head: str = ""
    bundled: Bundled | None = None
    folder: Folder | None = None

    @property
    def title(self) -> str:
        """Return the name of the architecture and of its library, for messages."""
        if self.folder is None:
            return f"torchvision's {self.name}"
        return f"timm's {self.build.arguments['architecture']}"
