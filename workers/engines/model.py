"""From settings to a network, its record and its labels. Missing weights are a value, no end."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from models.labels import LabelSet, imagenet1k, read_labels
from models.schemas import ModelRecord
from models.settings import Settings
from models.weights import CATALOGUE, RESNET18_PREPROCESSING, PublishedWeights
from workers.engines.checkpoint import State, load_state, random_state
from workers.engines.resnet18 import ResNet18
from workers.weights_store import WeightsCorrupt, WeightsStore, WeightsUnavailable, file_sha256

log = logging.getLogger("darkroom.weights")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network with its record and labels; or nothing, and the problem that says what to do."""

    network: ResNet18 | None = None
    record: ModelRecord | None = None
    labels: LabelSet | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """Opened weights; `sha256` is the file's, or that of the seed's description."""

    name: str
    sha256: str
    state: State
    labels: LabelSet
    random: bool = False


def load_model(settings: Settings) -> Loaded:
    """What the settings ask for; ValueError when they are wrong."""
    try:
        weights = _open(settings)
    except (WeightsUnavailable, WeightsCorrupt) as error:
        log.error("%s", error)
        return Loaded(problem=str(error))
    classes = weights.state["fc.weight"].shape[0]
    if len(weights.labels) != classes:
        raise ValueError(
            f"the weights have {classes} classes, but {weights.labels.name} "
            f"has {len(weights.labels)} labels"
        )
    network = ResNet18(weights.state, settings.precision, RESNET18_PREPROCESSING)
    record = ModelRecord(
        name=weights.name,
        sha256=weights.sha256,
        label_set=weights.labels.name,
        n_classes=classes,
        random=weights.random,
        preprocessing=RESNET18_PREPROCESSING.version,
        precision=network.precision,
        device="cpu",
    )
    return Loaded(network, record, weights.labels)


def _open(settings: Settings) -> Weights:
    name = settings.weights
    if name in CATALOGUE:
        return _published(CATALOGUE[name], settings)
    if name.split(":")[0] == "random":
        return _random(name)
    if name.endswith((".pth", ".safetensors")):
        return _file(Path(name), settings)
    choices = ", ".join([*CATALOGUE, "random"])
    raise ValueError(f"no weights {name!r}; there are {choices}, or a .pth or .safetensors file")


def _published(weights: PublishedWeights, settings: Settings) -> Weights:
    path = WeightsStore(settings.cache_folder).fetch(weights, progress=True)
    return Weights(weights.name, weights.sha256, load_state(path), imagenet1k())


def _random(name: str) -> Weights:
    seed = name.removeprefix("random").removeprefix(":") or "0"
    if not seed.isdigit():
        raise ValueError(f"{name!r}: random weights are 'random' or 'random:SEED'")
    log.warning("random weights: the labels mean nothing")
    digest = hashlib.sha256(f"resnet18 random:{seed}".encode()).hexdigest()
    return Weights("random", digest, random_state(int(seed), 1000), imagenet1k(), random=True)


def _file(path: Path, settings: Settings) -> Weights:
    if settings.weights_labels is None:
        raise ValueError(f"{path}: set DARKROOM_WEIGHTS_LABELS to the file with its labels")
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    digest = file_sha256(path)
    if settings.weights_sha256 not in (None, digest):
        raise ValueError(f"{path} has sha256 {digest}, not {settings.weights_sha256}")
    return Weights(path.name, digest, load_state(path), read_labels(settings.weights_labels))
