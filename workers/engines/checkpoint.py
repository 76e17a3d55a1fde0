"""Checkpoints: a weights file opened as a state dict that fits torchvision's resnet18.

Knows nothing of downloads and digests: the file was verified before, and is not trusted all the
same. No code in it is run, and every name, shape and number is checked before it is used.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from workers.engines.architecture import Network

State = dict[str, Tensor]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_COUNTER = "num_batches_tracked"
"""Batch norms count their batches in training; older files lack the number and nothing reads it."""
_NAMED_PROBLEMS = 3


def load_state(path: Path, n_labels: int) -> State:
    """A `.pth` or `.safetensors` file as resnet18's state dict, float32 on the CPU.

    The number of classes is that of `fc.weight` and must be `n_labels`: a network is never served
    with labels that are not its own. Half precision is widened. ValueError names the first
    problems; OSError when the file cannot be read.
    """
    state = _tensors(path)
    if problems := list(_problems(state)):
        more = f" and {len(problems) - _NAMED_PROBLEMS} more" * (len(problems) > _NAMED_PROBLEMS)
        raise ValueError(
            f"{path} does not hold the weights of torchvision's resnet18: "
            f"{'; '.join(problems[:_NAMED_PROBLEMS])}{more}"
        )
    n_classes = state["fc.weight"].shape[0]
    if n_classes != n_labels:
        raise ValueError(
            f"{path} has {n_classes} classes, but there are {n_labels} labels: "
            "give the labels these weights were trained with, one for each class"
        )
    return {name: _ready(state, name) for name in _expected(n_classes)}


def random_state(seed: int, n_classes: int) -> State:
    """Untrained weights, torchvision's own initialisation: the same for the same seed.

    Draws from torch's CPU generator and puts it back as it was; no other thread may draw meanwhile.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = Network(n_classes)
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """A digest over names, dtypes, shapes and values: what identifies weights without a file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(path: Path) -> State:
    """What is in the file, if that is a flat mapping of names to plain tensors."""
    try:
        if path.suffix.lower() == ".safetensors":
            found: object = safetensors.torch.load(path.read_bytes())
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # A damaged or hostile file makes the readers raise nearly anything.
        raise ValueError(_unreadable(path, error)) from error
    if isinstance(found, dict) and all(isinstance(t, Tensor) for t in found.values()):
        return found
    keys = f" of {', '.join(map(str, [*found][:5]))}" if isinstance(found, dict) else ""
    raise ValueError(
        f"{path} holds one {type(found).__name__}{keys}, not a state dict of tensors: "
        "save `model.state_dict()` alone"
    )


def _unreadable(path: Path, error: Exception) -> str:
    if path.suffix.lower() == ".safetensors":
        return f"{path} is not a safetensors file: {error}"
    if refused := re.search(
        r"Unsupported (?:global|class|operand): ?(?:GLOBAL )?(\S+)", str(error)
    ):
        return (
            f"{path} holds more than tensors ({refused[1]}) and is refused, because opening it "
            "could run code: save `model.state_dict()` alone, or use .safetensors"
        )
    return f"{path} is damaged, or was not written by torch.save ({type(error).__name__})"


def _problems(state: State) -> Iterator[str]:
    """Where `state` is not a resnet18, in the network's order."""
    head = state.get("fc.weight")
    expected = _expected(head.shape[0] if head is not None and head.ndim and len(head) else 1000)
    for name, shape in expected.items():
        tensor = state.get(name)
        if tensor is None:
            if not name.endswith(_COUNTER):
                yield f"{name} is missing"
        elif tensor.shape != shape:
            yield f"{name} is {tuple(tensor.shape)} instead of {tuple(shape)}"
        elif tensor.layout is not torch.strided or tensor.device.type != "cpu":
            yield f"{name} is not a plain tensor ({tensor.layout}, {tensor.device.type})"
        elif not name.endswith(_COUNTER) and tensor.dtype not in _FLOATS:
            yield f"{name} is {tensor.dtype}, not floating point"
        elif not torch.isfinite(tensor.float()).all():
            yield f"{name} has values that are not finite"
    yield from (f"{name} is not part of it" for name in state if name not in expected)


def _expected(n_classes: int) -> dict[str, torch.Size]:
    """Names and shapes; made on the meta device, which holds no numbers and draws none."""
    with torch.device("meta"):
        network = Network(n_classes)
    return {name: tensor.shape for name, tensor in network.state_dict().items()}


def _ready(state: State, name: str) -> Tensor:
    if name.endswith(_COUNTER):
        return torch.zeros((), dtype=torch.int64)
    return state[name].detach().to(torch.float32).contiguous()
