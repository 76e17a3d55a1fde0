"""From settings to a network, its record and its labels. Missing weights are a value, no end."""

import logging
from dataclasses import dataclass

from models.labels import LabelSet, imagenet1k, read_labels
from models.schemas import ModelRecord
from models.settings import Settings
from models.weights import (
    RESNET18_PREPROCESSING,
    LocalFile,
    Published,
    Random,
    WeightsSource,
    resolve,
)
from workers.engines.checkpoint import State, load_state, random_state, state_sha256
from workers.engines.resnet18 import ResNet18
from workers.weights_store import WeightsStore, WeightsUnavailable, verified_sha256

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
    """Opened weights; `sha256` is the file's, or for random ones that of the tensors."""

    name: str
    sha256: str
    state: State
    labels: LabelSet


def load_model(settings: Settings) -> Loaded:
    """What the settings ask for; ValueError when they are wrong."""
    source = resolve(settings)
    try:
        weights = _open(source, WeightsStore(settings.cache_folder))
    except WeightsUnavailable as error:
        log.error("%s", error)
        return Loaded(problem=str(error))
    network = ResNet18(weights.state, settings.precision, RESNET18_PREPROCESSING)
    record = ModelRecord(
        name=weights.name,
        sha256=weights.sha256,
        label_set=weights.labels.name,
        n_classes=len(weights.labels.labels),
        random=isinstance(source, Random),
        preprocessing=RESNET18_PREPROCESSING.version,
        precision=network.precision,
        device="cpu",
    )
    return Loaded(network, record, weights.labels)


def _open(source: WeightsSource, store: WeightsStore) -> Weights:
    if isinstance(source, Published):
        published, labels = source.published, imagenet1k()
        state = load_state(store.fetch(published), len(labels.labels))
        return Weights(published.name, published.sha256, state, labels)
    if isinstance(source, LocalFile):
        labels = read_labels(source.labels_path)
        sha256 = verified_sha256(source.path, source.sha256)
        return Weights(
            source.path.name, sha256, load_state(source.path, len(labels.labels)), labels
        )
    log.warning("random weights: the labels mean nothing")
    labels = imagenet1k()
    state = random_state(source.seed, len(labels.labels))
    return Weights("random", state_sha256(state), state, labels)
