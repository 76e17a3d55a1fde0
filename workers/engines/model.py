"""From settings to a network, its record and its labels. Missing weights are a value, no end."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from models.api.schemas import ModelRecord
from models.labels import LabelSet, read_labels, shipped
from models.settings import Precision, Settings
from models.weights import (
    RESNET18_PREPROCESSING,
    Auto,
    Bundled,
    LocalFile,
    Published,
    Random,
    WeightsSource,
    resolve,
)
from workers.engines.checkpoint import State, load_state, random_state, state_sha256
from workers.weights_store import WeightsStore, WeightsUnavailable, verified_sha256

log = logging.getLogger("darkroom.weights")


__all__ = ["Loaded", "State", "load_model"]


class Network(Protocol):
    """What `build` makes of weights."""

    @property
    def precision(self) -> Precision:
        """Of its arithmetic."""


NetworkT = TypeVar("NetworkT", bound=Network)


@dataclass(frozen=True)
class Loaded(Generic[NetworkT]):
    """A network with its record and labels; or nothing, and the problem that says what to do."""

    network: NetworkT | None = None
    record: ModelRecord | None = None
    labels: LabelSet | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """Opened weights; `sha256` is the file's, or for random ones that of the tensors.

    `warning`: why its labels are not what one would expect, None when they are.
    """

    name: str
    sha256: str
    state: State
    labels: LabelSet
    warning: str | None = None


def load_model(
    settings: Settings, device: str, build: Callable[[State], NetworkT]
) -> Loaded[NetworkT]:
    """What the settings ask for, built for `device`; ValueError when they are wrong."""
    source = resolve(settings)
    try:
        weights = _open(source, WeightsStore(settings.cache_folder))
    except WeightsUnavailable as error:
        log.error("%s", error)
        return Loaded(problem=str(error))
    if weights.warning:
        log.warning("%s", weights.warning)
    network = build(weights.state)
    record = ModelRecord(
        name=weights.name,
        sha256=weights.sha256,
        label_set=weights.labels.name,
        n_classes=len(weights.labels.labels),
        random=isinstance(source, Random),
        preprocessing=RESNET18_PREPROCESSING.version,
        precision=network.precision,
        device=device,
        warning=weights.warning,
    )
    return Loaded(network, record, weights.labels)


def _open(source: WeightsSource, store: WeightsStore) -> Weights:
    match source:
        case Auto(preferred, fallback):
            return _preferred(preferred, fallback, store)
        case Published(published):
            path, labels = store.fetch(published), shipped(published.label_set)
            return _file(published.name, path, published.sha256, labels)
        case Bundled():
            sha256 = verified_sha256(source.path, source.sha256)
            return _file(source.name, source.path, sha256, shipped(source.label_set))
        case LocalFile():
            labels = read_labels(source.labels_path)
            sha256 = verified_sha256(source.path, source.sha256)
            return _file(source.path.name, source.path, sha256, labels)
        case Random():
            labels = shipped("imagenet1k")
            state = random_state(source.seed, len(labels.labels))
            warning = "random weights: the labels mean nothing"
            return Weights("random", state_sha256(state), state, labels, warning)


def _preferred(preferred: Published, fallback: Bundled, store: WeightsStore) -> Weights:
    """What `auto` found; a fallback never comes silently."""
    try:
        return _open(preferred, store)
    except WeightsUnavailable as error:
        log.warning("%s", error)
    weights = _open(fallback, store)
    warning = (
        f"the weights {preferred.published.name} could not be had; these know "
        f"{len(weights.labels.labels)} classes only, which GET /models lists"
    )
    return replace(weights, warning=warning)


def _file(name: str, path: Path, sha256: str, labels: LabelSet) -> Weights:
    return Weights(name, sha256, load_state(path, len(labels.labels)), labels)
