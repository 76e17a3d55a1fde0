"""From settings to a network: the bundled weights, and when `auto` may fall back to them."""

import hashlib
import logging
from pathlib import Path

import pytest
import torch

from models import weights
from models.settings import Settings
from models.weights import BUNDLED, CATALOGUE, Auto, Published, PublishedWeights
from workers.engines.checkpoint import random_state
from workers.engines.model import Loaded, load_model
from workers.engines.resnet18 import ResNet18
from workers.weights_store import file_sha256


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads go to a proxy that is not there."""
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")


def asked(name: str, cache: Path) -> Settings:
    return Settings.model_validate({"weights": name, "cache_folder": cache, "precision": "fp32"})


def opened(settings: Settings) -> Loaded[ResNet18]:
    spec = weights.RESNET18_PREPROCESSING
    return load_model(settings, "cpu", lambda state: ResNet18(state, settings.precision, spec))


def test_the_bundled_weights_are_the_pinned_ones_and_small() -> None:
    assert file_sha256(BUNDLED.path) == BUNDLED.sha256
    assert BUNDLED.path.stat().st_size <= 24_000_000


def test_the_bundled_weights_need_no_network_and_say_what_they_are(
    tmp_path: Path, no_network: None
) -> None:
    loaded = opened(asked("bundled", tmp_path))
    assert loaded.record is not None
    assert loaded.labels is not None
    assert (loaded.record.name, loaded.record.label_set) == ("bundled", "imagenette10")
    assert (loaded.record.sha256, loaded.record.n_classes) == (BUNDLED.sha256, 10)
    assert loaded.record.warning is None
    assert not loaded.record.random
    assert loaded.labels.labels[8] == "golf ball"


def test_auto_falls_back_to_the_bundled_weights_and_says_so_loudly(
    tmp_path: Path, no_network: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "darkroom.weights"):
        record = opened(asked("auto", tmp_path)).record
    assert record is not None
    assert record.name == "bundled"
    assert record.warning
    assert "imagenet1k_v1 could not be had" in record.warning
    assert "10 classes only" in record.warning
    assert record.warning in caplog.messages
    assert any("download.pytorch.org" in message for message in caplog.messages)


def test_auto_takes_the_published_weights_when_they_are_in_the_cache(
    tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights" / "stand-in.pth"
    path.parent.mkdir()
    torch.save(random_state(0, 1000), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    url, size = "https://example.org/stand-in.pth", path.stat().st_size
    published = PublishedWeights("stand-in", url, path.name, size, digest, "imagenet1k")
    monkeypatch.setattr(weights, "AUTO", Auto(Published(published), BUNDLED))
    record = opened(asked("auto", tmp_path)).record
    assert record is not None
    assert (record.name, record.sha256, record.warning) == ("stand-in", digest, None)


def test_weights_asked_for_by_name_never_fall_back(tmp_path: Path, no_network: None) -> None:
    loaded = opened(asked("imagenet1k_v1", tmp_path))
    assert loaded.network is None
    assert loaded.record is None
    assert CATALOGUE["imagenet1k_v1"].sha256 in str(loaded.problem)
