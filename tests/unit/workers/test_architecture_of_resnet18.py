"""Our ResNet18 against torchvision's: the same names, the same fresh weights, the same logits."""

import subprocess
import sys

import pytest
import torch
import torchvision

from workers.engines.architecture import Network


@pytest.mark.parametrize("n_classes", [1, 10])
def test_fresh_weights_are_those_that_torchvision_draws(n_classes: int) -> None:
    states = []
    for build in (
        lambda: Network(n_classes),
        lambda: torchvision.models.resnet18(num_classes=n_classes),
    ):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(7)
            states.append(build().state_dict())
    ours, theirs = states
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_logits_are_torchvision_s_to_the_bit() -> None:
    theirs = torchvision.models.resnet18(num_classes=5).eval()
    ours = Network(5).eval()
    ours.load_state_dict(theirs.state_dict())
    batch = torch.rand(2, 3, 64, 48)
    with torch.inference_mode():
        assert torch.equal(ours(batch), theirs(batch))


def test_a_worker_s_start_imports_neither_torchvision_nor_a_compiler_nor_http() -> None:
    program = (
        "import sys, app.processes.member, workers.engines.cpu.engine, workers.engines.cpu.forward,"
        "workers.engines.model; "
        "print(*[m for m in ('torchvision', 'torch._dynamo', 'fastapi') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
