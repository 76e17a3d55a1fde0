"""Our networks against torchvision's: the same names, the same fresh weights, the same logits."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from models.networks.registry import NETWORKS
from tests.server import PATIENCE
from workers.engines.builder import build

BOTH = pytest.mark.parametrize("name", ["resnet18", "resnet50"])
"""A network of each kind of block; the others only repeat them."""


def theirs_of(name: str, n_classes: int) -> nn.Module:
    import torchvision

    made: nn.Module = getattr(torchvision.models, name)(num_classes=n_classes)
    return made


def drawn(make: Callable[[], nn.Module]) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        return dict(make().state_dict())


@BOTH
def test_fresh_weights_are_those_that_torchvision_draws(name: str) -> None:
    ours = drawn(lambda: build(NETWORKS[name], 10))
    theirs = drawn(lambda: theirs_of(name, 10))
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[each], theirs[each]) for each in theirs)


@BOTH
def test_logits_are_torchvision_s_to_the_bit(name: str) -> None:
    theirs = theirs_of(name, 5).eval()
    ours = build(NETWORKS[name], 5).eval()
    ours.load_state_dict(theirs.state_dict())
    batch = torch.rand(2, 3, 64, 48)
    with torch.inference_mode():
        assert torch.equal(ours(batch), theirs(batch))


def test_a_worker_s_start_imports_neither_torchvision_nor_a_compiler_nor_http() -> None:
    program = (
        "import sys, app.processes.member, workers.engines.cpu.engine, workers.engines.cpu.network,"
        "workers.engines.cpu.network, workers.engines.model; "
        "print(*[m for m in ('torchvision', 'torch._dynamo', 'fastapi') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.strip() == ""
