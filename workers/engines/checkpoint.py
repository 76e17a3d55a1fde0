"""Weights files to state dicts of torchvision's resnet18, checked whole; executes nothing."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
import torchvision
from torch import Tensor

State = dict[str, Tensor]


def load_state(path: Path) -> State:
    """A resnet18 state dict in float32 from a .pth or .safetensors file; else ValueError."""
    try:
        if path.suffix == ".safetensors":
            found = safetensors.torch.load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, safetensors.SafetensorError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is not a weights file that can be read safely") from error
    return _checked(found, path)


def random_state(seed: int, n_classes: int) -> State:
    """torchvision's own initialisation, from a seed; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state: State = torchvision.models.resnet18(num_classes=n_classes).state_dict()
        return state


def _checked(found: object, path: Path) -> State:
    if not isinstance(found, Mapping) or not isinstance(found.get("fc.weight"), Tensor):
        raise ValueError(f"{path} is no resnet18: it has no fc.weight")
    expected = random_state(0, found["fc.weight"].shape[0])
    problems = [f"{name} is unexpected" for name in found if name not in expected]
    for name, tensor in expected.items():
        given = found.get(name)
        if given is None:
            problems.append(f"{name} is missing")
        elif given.shape != tensor.shape:
            problems.append(f"{name} is {tuple(given.shape)}, not {tuple(tensor.shape)}")
    if problems:
        raise ValueError(f"{path} is no resnet18: {'; '.join(problems[:3])}")
    return {n: t.float() if t.is_floating_point() else t for n, t in found.items()}
