"""From settings to a network and its record: resolves, fetches, verifies and opens the weights."""

import logging
from dataclasses import dataclass

from models.labels import LabelSet, imagenet1k, read_labels
from models.schemas import ModelRecord
from models.settings import Settings
from models.weights import RESNET18_PREPROCESSING
from workers.engines.checkpoint import load_state, random_state
from workers.engines.resnet18 import ResNet18
from workers.weights_store import (
    LocalFile,
    Published,
    Random,
    WeightsStore,
    WeightsUnavailable,
    file_sha256,
    resolve,
)

log = logging.getLogger("darkroom.weights")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network with its record and labels; or nothing, and the problem that says what to do."""

    network: ResNet18 | None
    record: ModelRecord | None
    labels: LabelSet | None
    problem: str | None = None


def load_model(settings: Settings, *, progress: bool = False) -> Loaded:
    """What the settings ask for. Missing weights are a value; wrong settings raise ValueError."""
    raise AssertionError(settings, progress)
