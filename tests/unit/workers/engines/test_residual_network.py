"""Our networks against torchvision's: the same names of weights, the same logits."""

import sys

import pytest
import torch

from models.networks.registry import NETWORKS
from tests.server import ran
from workers.engines.builder import build


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])  # a network of each kind of block
def test_logits_are_torchvision_s_to_the_bit(name: str) -> None:
    import torchvision

    theirs = getattr(torchvision.models, name)(num_classes=5).eval()
    ours = build(NETWORKS[name], 5).eval()
    ours.load_state_dict(theirs.state_dict())
    batch = torch.rand(2, 3, 64, 48)
    with torch.inference_mode():
        assert torch.equal(ours(batch), theirs(batch))


def test_a_worker_s_start_imports_neither_torchvision_nor_a_compiler_nor_http() -> None:
    program = (
        "import sys, app.processes.member, workers.engines.cpu.engine, workers.engines.cpu.network,"
        "workers.engines.model; "
        "print(*[m for m in ('torchvision', 'torch._dynamo', 'fastapi') if m in sys.modules])"
    )
    assert ran(sys.executable, "-c", program).stdout.strip() == ""
