"""Networks of any kind on the CPU: built by a dotted name, with or without speed-ups."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.networks.registry import NETWORKS
from models.networks.spec import Speedup
from models.settings import Precision
from tests.tiny_network import SIDE, TINY, tiny_network
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


@pytest.mark.parametrize("name", NETWORKS)
def test_speed_ups_are_optional_and_change_logits_by_rounding_only(name: str) -> None:
    spec = NETWORKS[name]
    state = random_state(0, 3, spec)
    crops = np.random.default_rng(1).integers(0, 256, (1, 224, 224, 3), np.uint8)
    fast = CpuNetwork(state, Precision.FP32, spec).logits(crops)
    folded = replace(spec, speedups=frozenset({Speedup.FOLDED_BATCH_NORMS}))
    for slower in (folded, replace(spec, speedups=frozenset())):
        plain = CpuNetwork(state, Precision.FP32, slower).logits(crops)
        assert np.abs(fast - plain).max() <= 1e-4 * np.abs(plain).max()


def test_fused_convolutions_without_folded_batch_norms_are_refused() -> None:
    with pytest.raises(ValueError, match="fused convolutions need folded batch norms"):
        replace(TINY, speedups=frozenset({Speedup.FUSED_CONVOLUTIONS}))


def test_weights_of_another_network_are_refused_in_a_specification() -> None:
    with pytest.raises(ValueError, match="all of this network"):
        replace(TINY, name="small")


def test_fused_convolutions_of_a_network_of_another_kind_are_refused() -> None:
    both = frozenset({Speedup.FUSED_CONVOLUTIONS, Speedup.FOLDED_BATCH_NORMS})
    with pytest.raises(TypeError, match="only residual networks can be fused, not TinyNetwork"):
        CpuNetwork(random_state(0, 2, TINY), Precision.FP32, replace(TINY, speedups=both))
