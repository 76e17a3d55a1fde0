"""From settings to a network: the bundled weights, and when `auto` may fall back to them."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.networks.registry import BUNDLED, CATALOGUE, RESNET18, RESNET50
from models.networks.served import Model, ServedNetwork
from models.networks.spec import NetworkSpec, PublishedWeights
from models.settings import Settings
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import State, load_model, random_state
from workers.weights_store import verified_sha256


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send downloads to a proxy that does not exist."""
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")


def asked(name: str, cache: Path) -> Settings:
    return Settings.model_validate({"weights": name, "cache_folder": cache, "precision": "fp32"})


def opened(settings: Settings, spec: NetworkSpec = RESNET18) -> ServedNetwork:
    def build(spec: NetworkSpec, state: State) -> CpuNetwork:
        return CpuNetwork(state, settings.precision, spec)

    loaded = load_model(settings, spec, "cpu", build)
    assert (loaded.network is None) == (loaded.served.model is None)
    return loaded.served


def model_of(settings: Settings, spec: NetworkSpec = RESNET18) -> Model:
    model = opened(settings, spec).model
    assert model is not None
    return model


def test_the_bundled_weights_are_the_pinned_ones_and_small() -> None:
    assert verified_sha256(BUNDLED.path, None) == BUNDLED.sha256
    assert BUNDLED.path.stat().st_size <= 24_000_000


@pytest.mark.usefixtures("no_network")
def test_the_bundled_weights_need_no_network_and_say_what_they_are(tmp_path: Path) -> None:
    loaded = model_of(asked("bundled", tmp_path))
    assert (loaded.record.name, loaded.record.label_set) == ("bundled", "imagenette10")
    assert (loaded.record.sha256, loaded.record.n_classes) == (BUNDLED.sha256, 10)
    assert loaded.record.warning is None
    assert not loaded.record.random
    assert loaded.labels.labels[8] == "golf ball"


@pytest.mark.usefixtures("no_network")
def test_auto_falls_back_to_the_bundled_weights_and_says_so_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "darkroom.weights"):
        record = model_of(asked("auto", tmp_path)).record
    assert record.name == "bundled"
    assert record.warning
    assert "imagenet1k_v1 could not be had" in record.warning
    assert "10 classes only" in record.warning
    assert record.warning in caplog.messages
    assert any("download.pytorch.org" in message for message in caplog.messages)


@pytest.mark.usefixtures("no_network")
def test_auto_takes_the_published_weights_when_they_are_in_the_cache(tmp_path: Path) -> None:
    spec = RESNET18
    path = tmp_path / "weights" / "stand-in.pth"
    path.parent.mkdir()
    torch.save(random_state(0, 1000, spec), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    url, size = "https://example.org/stand-in.pth", path.stat().st_size
    published = PublishedWeights(spec.name, "stand-in", url, path.name, size, digest, "imagenet1k")
    record = model_of(asked("auto", tmp_path), replace(spec, weights=(published,))).record
    assert (record.network, record.name) == (spec.name, "stand-in")
    assert (record.sha256, record.warning) == (digest, None)


@pytest.mark.usefixtures("no_network")
def test_weights_asked_for_by_name_never_fall_back(tmp_path: Path) -> None:
    loaded = opened(asked("imagenet1k_v1", tmp_path))
    assert loaded.model is None
    assert CATALOGUE["imagenet1k_v1"].sha256 in str(loaded.problem)


@pytest.mark.usefixtures("no_network")
def test_a_network_without_bundled_weights_never_falls_back(tmp_path: Path) -> None:
    loaded = opened(asked("auto", tmp_path), RESNET50)
    assert loaded.model is None
    assert "darkroom weights fetch resnet50/imagenet1k_v2" in str(loaded.problem)
