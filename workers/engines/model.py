"""Load the networks of the settings, their records, labels and weights.

The digest of a weights file was verified before, and its content is not trusted all the same: no
code in it is run, and every name, shape and number is checked before use. Missing weights are a
value.
"""

import hashlib
import logging
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from models.api.schemas import ModelRecord
from models.labels import LabelSet, read_labels, shipped
from models.networks.registry import NETWORKS, RESNET18
from models.networks.served import Model, ServedNetwork
from models.networks.spec import Bundled, NetworkSpec, PublishedWeights
from models.settings import Settings
from models.weights.sources import (
    Auto,
    LocalFile,
    Random,
    WeightsSource,
    resolve,
    served_specs,
)
from workers.engines.builder import build, build_empty, classes_of, on_one_thread
from workers.engines.timm_network import described
from workers.weights_store import WeightsStore, WeightsUnavailable, verified_sha256

State = dict[str, Tensor]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_COUNTER = "num_batches_tracked"
"""The batches that a batch norm saw in training. Older files lack the number; nothing reads it."""
_NAMED_PROBLEMS = 3
_WRAPPERS = (
    *("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net", "weights"),
)
"""Names under which trainings keep the weights beside their optimiser and their counters; averaged
weights come first, as timm evaluates them."""
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.", "encoder.", "timm_model.")
"""Beginnings of names that DataParallel, torch.compile and frameworks of training add."""


@on_one_thread()
def load_state(path: Path, n_labels: int, spec: NetworkSpec = RESNET18) -> State:
    """Open a `.pth` or `.safetensors` file as the state dict of a network, float32 on the CPU.

    The file may be a checkpoint of a training. The number of classes is that of the last layer and
    must be `n_labels`: a network is never served with labels that are not its own. Half precision
    is widened. ValueError names the first problems; OSError is raised when the file cannot be read.
    """
    state = _unwrapped(_tensors(path), spec)
    if problems := list(_problems(state, spec)):
        for other in NETWORKS.values():
            if other.name != spec.name and not any(_problems(state, other)):
                raise ValueError(
                    f"{path} has the weights of {other.name}, not of {spec.name}: set "
                    f"DARKROOM_NETWORKS={other.name}"
                )
        more = f" and {len(problems) - _NAMED_PROBLEMS} more" * (len(problems) > _NAMED_PROBLEMS)
        raise ValueError(
            f"{path} does not hold the weights of {spec.title}: "
            f"{'; '.join(problems[:_NAMED_PROBLEMS])}{more}"
        )
    n_classes = classes_of(state, spec)
    if n_classes != n_labels:
        raise ValueError(
            f"{path} has {n_classes} classes, but there are {n_labels} labels: "
            "give the labels these weights were trained with, one for each class"
        )
    return {name: _ready(state, name) for name in _expected(n_classes, spec)}


def _unwrapped(state: State, spec: NetworkSpec) -> State:
    """Remove the beginnings that a training added to the names of all tensors."""
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            own = _expected(classes_of(state, spec), spec)
            if not all(name.startswith(prefix) for name in own):
                return _unwrapped({n.removeprefix(prefix): t for n, t in state.items()}, spec)
    return state


def random_state(seed: int, n_classes: int, spec: NetworkSpec = RESNET18) -> State:
    """Draw untrained weights by torchvision's own initialisation: the same for the same seed.

    The numbers come from torch's CPU generator, which is put back as it was. No second thread may
    draw meanwhile.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = build(spec, n_classes)
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 digest over names, dtypes, shapes and values, for weights without a file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(path: Path) -> State:
    """Return the content of the file if that is a flat mapping of names to plain tensors."""
    try:
        if path.suffix.lower() == ".safetensors":
            found: object = safetensors.torch.load(path.read_bytes())
        else:
            with torch.serialization.safe_globals([Namespace]):  # the arguments of a training
                found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # A damaged or hostile file makes the readers raise nearly anything.
        raise ValueError(_unreadable(path, error)) from error
    if isinstance(found, dict):
        inside = [found[name] for name in _WRAPPERS if isinstance(found.get(name), dict)]
        found = inside[0] if inside else found
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
    if "TorchScript" in str(error):
        return (
            f"{path} is a program of TorchScript, which is not run: save "
            "`torch.jit.load(…).state_dict()` instead"
        )
    if refused := re.search(
        r"(?:Unsupported (?:global|class|operand): ?(?:GLOBAL )?|load unsupported GLOBAL )(\S+)",
        str(error),
    ):
        return (
            f"{path} holds more than tensors ({refused[1]}) and is refused, because opening it "
            "could run code: save `model.state_dict()` alone, or use .safetensors"
        )
    return f"{path} is damaged, or was not written by torch.save ({type(error).__name__})"


def _problems(state: State, spec: NetworkSpec) -> Iterator[str]:
    """Yield where `state` does not fit the network, in the network's order."""
    expected = _expected(classes_of(state, spec), spec)
    for name, wanted in expected.items():
        shape, tensor = wanted.shape, state.get(name)
        if tensor is None:
            if not name.endswith(_COUNTER):
                yield f"{name} is missing"
        elif tensor.shape != shape:
            yield f"{name} is {tuple(tensor.shape)} instead of {tuple(shape)}"
        elif tensor.layout is not torch.strided or tensor.device.type != "cpu":
            yield f"{name} is not a plain tensor ({tensor.layout}, {tensor.device.type})"
        elif wanted.is_floating_point() and tensor.dtype not in _FLOATS:
            yield f"{name} is {tensor.dtype}, not floating point"
        elif not torch.isfinite(tensor.float()).all():
            yield f"{name} has values that are not finite"
    yield from (f"{name} is not part of it" for name in state if name not in expected)


def _expected(n_classes: int, spec: NetworkSpec) -> State:
    """Return names, shapes and dtypes; tensors of the meta device hold no numbers."""
    with torch.device("meta"):
        return build_empty(spec, n_classes).state_dict()


def _ready(state: State, name: str) -> Tensor:
    if name.endswith(_COUNTER):
        return torch.zeros((), dtype=torch.int64)
    tensor = state[name].detach()
    return (tensor.to(torch.float32) if tensor.is_floating_point() else tensor).contiguous()


log = logging.getLogger("darkroom.weights")


__all__ = ["Loaded", "State", "load_model", "load_models"]


@dataclass(frozen=True)
class Loaded:
    """A network as it is served, and the network that `build` made of its weights, if it has any.

    The type of a network and its `precision` are those of the engine.
    """

    served: ServedNetwork
    network: Any = None


@dataclass(frozen=True, slots=True)
class Weights:
    """Opened weights; `sha256` is the file's, or the digest of random tensors.

    `warning` says why its labels differ from the expected labels; it is None when they are.
    """

    name: str
    sha256: str
    state: State
    labels: LabelSet
    warning: str | None = None


def load_models(
    settings: Settings, device: str, build: Callable[[NetworkSpec, State], Any]
) -> list[Loaded]:
    """Load every network that the settings ask for, the default first.

    ValueError names the fault of the settings.
    """
    return [load_model(settings, spec, device, build) for spec in served_specs(settings)]


def load_model(
    settings: Settings,
    spec: NetworkSpec,
    device: str,
    build: Callable[[NetworkSpec, State], Any],
) -> Loaded:
    """Load a network for `device`; ValueError names the fault of the settings."""
    source = resolve(settings, spec)
    if spec.folder is not None:
        spec = described(spec)
    served = ServedNetwork(spec.name, side=spec.preprocessing.crop, features=spec.features)
    try:
        weights = _open(source, spec, WeightsStore(settings.cache_folder))
    except WeightsUnavailable as error:
        log.error("%s", error)
        return Loaded(replace(served, problem=str(error)))
    if weights.warning:
        log.warning("%s", weights.warning)
    network = build(spec, weights.state)
    record = ModelRecord(
        network=spec.name,
        name=weights.name,
        sha256=weights.sha256,
        label_set=weights.labels.name,
        n_classes=len(weights.labels.labels),
        random=isinstance(source, Random),
        preprocessing=spec.preprocessing.version,
        precision=network.precision,
        device=device,
        warning=weights.warning,
    )
    return Loaded(replace(served, model=Model(record, weights.labels)), network)


def _open(source: WeightsSource, spec: NetworkSpec, store: WeightsStore) -> Weights:
    match source:
        case Auto(preferred, fallback):
            return _preferred(preferred, fallback, spec, store)
        case PublishedWeights():
            path, labels = store.fetch(source), shipped(source.label_set)
            return _file(source.name, path, source.sha256, labels, spec)
        case Bundled():
            sha256 = verified_sha256(source.path, source.sha256)
            return _file(source.name, source.path, sha256, shipped(source.label_set), spec)
        case LocalFile():
            labels = read_labels(source.labels_path) if source.labels_path else _own_labels(spec)
            sha256 = verified_sha256(source.path, source.sha256)
            return _file(source.path.name, source.path, sha256, labels, spec)
        case Random():
            labels = shipped(spec.label_set) if spec.folder is None else _own_labels(spec)
            state = random_state(source.seed, len(labels.labels), spec)
            warning = "random weights: the labels mean nothing"
            return Weights("random", state_sha256(state), state, labels, warning)


def _own_labels(spec: NetworkSpec) -> LabelSet:
    """Return the labels of a network in a folder; a number for each class without names."""
    assert spec.folder is not None
    names = tuple(map(str, range(spec.folder.n_classes)))
    return spec.folder.labels or LabelSet("none", names, (None,) * len(names))


def _preferred(
    preferred: PublishedWeights, fallback: Bundled, spec: NetworkSpec, store: WeightsStore
) -> Weights:
    """Open the weights that `auto` finds; a fallback never comes silently."""
    try:
        return _open(preferred, spec, store)
    except WeightsUnavailable as error:
        log.warning("%s", error)
    weights = _open(fallback, spec, store)
    warning = (
        f"the weights {preferred.name} could not be had; these know "
        f"{len(weights.labels.labels)} classes only, which GET /models lists"
    )
    return replace(weights, warning=warning)


def _file(name: str, path: Path, sha256: str, labels: LabelSet, spec: NetworkSpec) -> Weights:
    return Weights(name, sha256, load_state(path, len(labels.labels), spec), labels)
