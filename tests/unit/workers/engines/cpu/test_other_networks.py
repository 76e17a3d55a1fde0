"""Networks of any kind on the CPU: built by a dotted name, with or without fused convolutions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from models.networks.registry import NETWORKS
from models.settings import Precision
from tests.tiny_network import SIDE, TINY, tiny_network
from workers.engines import builder
from workers.engines.cpu import network as cpu_network
from workers.engines.cpu.network import CpuNetwork
from workers.engines.model import load_state, random_state

BATCH = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), np.uint8)


def test_a_network_of_another_kind_needs_only_a_specification(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pth"
    torch.save(random_state(1, 4, TINY), path)
    state = load_state(path, 4, TINY)
    ours = CpuNetwork(state, Precision.FP32, TINY)
    theirs = tiny_network(width=6, n_classes=4)
    theirs.load_state_dict(state)
    with torch.inference_mode():
        expected = theirs(ours.normalised(BATCH)).numpy()
    assert np.allclose(ours.logits(BATCH), expected, atol=1e-6)
    assert ours.features(BATCH).shape == (2, 6)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_fused_convolutions_and_folded_batch_norms_change_logits_by_rounding_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = NETWORKS[name]
    state = random_state(0, 3, spec)
    crops = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3), np.uint8)
    fast = CpuNetwork(state, Precision.FP32, spec).logits(crops)
    monkeypatch.setattr(cpu_network, "supports", lambda _dtype: False)
    for fold in (builder.folded, lambda network: network):
        monkeypatch.setattr(builder, "folded", fold)
        plain = CpuNetwork(state, Precision.FP32, spec).logits(crops)
        assert np.abs(fast - plain).max() <= 1e-4 * np.abs(plain).max()
