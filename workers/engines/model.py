"""Load the networks of the settings, their records and labels. Missing weights are a value."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from models.api.schemas import ModelRecord
from models.labels import LabelSet, read_labels, shipped
from models.networks.served import Model, ServedNetwork
from models.networks.spec import Bundled, NetworkSpec
from models.settings import Precision, Settings
from models.weights.sources import (
    Auto,
    LocalFile,
    Published,
    Random,
    WeightsSource,
    resolve,
    served_specs,
)
from workers.engines.checkpoint import State, load_state, random_state, state_sha256
from workers.weights_digest import WeightsUnavailable, verified_sha256
from workers.weights_store import WeightsStore

log = logging.getLogger("darkroom.weights")


__all__ = ["Loaded", "State", "load_model", "load_models"]


class Network(Protocol):
    """What `build` makes of weights."""

    @property
    def precision(self) -> Precision:
        """Return the precision of its arithmetic."""


NetworkT = TypeVar("NetworkT", bound=Network)


@dataclass(frozen=True)
class Loaded(Generic[NetworkT]):
    """A network as it is served, and the network itself; None where it has no weights."""

    served: ServedNetwork
    network: NetworkT | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """Opened weights; `sha256` is the file's, or for random ones that of the tensors.

    `warning` says why its labels are not what one would expect; it is None when they are.
    """

    name: str
    sha256: str
    state: State
    labels: LabelSet
    warning: str | None = None


def load_models(
    settings: Settings, device: str, build: Callable[[NetworkSpec, State], NetworkT]
) -> list[Loaded[NetworkT]]:
    """Load every network that the settings ask for, the default first.

    ValueError says what is wrong with the settings.
    """
    return [load_model(settings, spec, device, build) for spec in served_specs(settings)]


def load_model(
    settings: Settings,
    spec: NetworkSpec,
    device: str,
    build: Callable[[NetworkSpec, State], NetworkT],
) -> Loaded[NetworkT]:
    """Load one network for `device`; ValueError says what is wrong with the settings."""
    source = resolve(settings, spec)
    try:
        weights = _open(source, spec, WeightsStore(settings.cache_folder))
    except WeightsUnavailable as error:
        log.error("%s", error)
        return Loaded(ServedNetwork(spec.name, problem=str(error)))
    if weights.warning:
        log.warning("%s", weights.warning)
    network = build(spec, weights.state)
    record = ModelRecord(
        network=spec.name,
        name=weights.name,
        sha256=weights.sha256,
        label_set=weights.labels.name,
        n_classes=len(weights.labels.labels),
        random=isinstance(source, Random),
        preprocessing=spec.preprocessing.version,
        precision=network.precision,
        device=device,
        warning=weights.warning,
    )
    return Loaded(ServedNetwork(spec.name, Model(record, weights.labels)), network)


def _open(source: WeightsSource, spec: NetworkSpec, store: WeightsStore) -> Weights:
    match source:
        case Auto(preferred, fallback):
            return _preferred(preferred, fallback, spec, store)
        case Published(published):
            path, labels = store.fetch(published), shipped(published.label_set)
            return _file(published.name, path, published.sha256, labels, spec)
        case Bundled():
            sha256 = verified_sha256(source.path, source.sha256)
            return _file(source.name, source.path, sha256, shipped(source.label_set), spec)
        case LocalFile():
            labels = read_labels(source.labels_path)
            sha256 = verified_sha256(source.path, source.sha256)
            return _file(source.path.name, source.path, sha256, labels, spec)
        case Random():
            labels = shipped(spec.label_set)
            state = random_state(source.seed, len(labels.labels), spec)
            warning = "random weights: the labels mean nothing"
            return Weights("random", state_sha256(state), state, labels, warning)


def _preferred(
    preferred: Published, fallback: Bundled, spec: NetworkSpec, store: WeightsStore
) -> Weights:
    """Open what `auto` finds; a fallback never comes silently."""
    try:
        return _open(preferred, spec, store)
    except WeightsUnavailable as error:
        log.warning("%s", error)
    weights = _open(fallback, spec, store)
    warning = (
        f"the weights {preferred.published.name} could not be had; these know "
        f"{len(weights.labels.labels)} classes only, which GET /models lists"
    )
    return replace(weights, warning=warning)


def _file(name: str, path: Path, sha256: str, labels: LabelSet, spec: NetworkSpec) -> Weights:
    return Weights(name, sha256, load_state(path, len(labels.labels), spec), labels)
