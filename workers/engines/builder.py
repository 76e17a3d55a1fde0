"""Build the torch module of a network by its specification, for both engines.

`models` may not import torch, so a specification only names the function that builds its module.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.overrides import TorchFunctionMode

from models.networks.spec import NetworkSpec, Preprocessing
from models.settings import Precision
from workers.engines.residual_network import ResidualNetwork

DTYPES = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Let torch compute the block on the calling thread alone; usable as a decorator.

    Weights are read and laid out by hundreds of small operations. Spread over all cores, each layer
    wakes threads that then wait for the next layer in a loop: 4 s of CPU time in place of 0.4.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build(spec: NetworkSpec, n_classes: int) -> nn.Module:
    """Import the function that the specification names, and build the module with fresh weights."""
    module, _, function = spec.build.function.rpartition(".")
    made: object = getattr(import_module(module), function)(
        **spec.build.arguments, n_classes=n_classes
    )
    assert isinstance(made, nn.Module)
    return made


class _NoDraws(TorchFunctionMode):
    """Leaves weights as they were allocated, where a module would fill them with random numbers."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


_DRAWS = frozenset(
    {Tensor.normal_, Tensor.uniform_}
    | {nn.init.kaiming_uniform_, nn.init.kaiming_normal_, nn.init.uniform_, nn.init.normal_}
)


def build_empty(spec: NetworkSpec, n_classes: int) -> nn.Module:
    """Build the module with weights of any value, for shapes or for a state dict to replace them.

    On torch's meta device, drawing numbers would also import torch's compiler and SymPy.
    """
    with _NoDraws():
        return build(spec, n_classes)


@on_one_thread()
def loaded(spec: NetworkSpec, state: Mapping[str, Tensor]) -> nn.Module:
    """Build the module with the weights of `state`, ready for inference.

    The batch norms of a residual network are folded into its convolutions.
    """
    network = build_empty(spec, classes_of(state, spec))
    network.load_state_dict(state)
    network = network.eval()
    return folded(network) if isinstance(network, ResidualNetwork) else network


def classes_of(state: Mapping[str, Tensor], spec: NetworkSpec) -> int:
    """Return the number of classes of the weights: the rows of the last layer.

    Weights without the layer have the number that their network should have.
    """
    last = state.get(f"{spec.head}.weight")
    if last is not None and last.ndim and len(last):
        return len(last)
    return 1000 if spec.folder is None else spec.folder.n_classes


def take_head(spec: NetworkSpec, network: nn.Module, instead: nn.Module) -> nn.Linear:
    """Replace the last layer of the module by `instead` and return the layer.

    A network without classes gets a layer without outputs: its logits are empty.
    """
    if not spec.head:
        with _NoDraws():
            return nn.Linear(spec.features, 0)
    head = cast(nn.Linear, network.get_submodule(spec.head))
    network.set_submodule(spec.head, instead)
    return head


def folded(network: nn.Module) -> nn.Module:
    """Fold every batch norm into the convolution declared right before it; same function."""
    for module in list(network.modules()):
        children = list(module.named_children())
        for (conv_name, conv), (norm_name, norm) in pairwise(children):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(module, norm_name, nn.Identity())
    return network


def normalisation_table(preprocessing: Preprocessing) -> NDArray[np.float32]:
    """Return the result of torchvision's transform for every level of every channel: (1, 256,
    3).
    """
    levels = torch.arange(256, dtype=torch.float32).view(1, 256, 1).div_(255)
    mean, std = torch.tensor(preprocessing.mean), torch.tensor(preprocessing.std)
    return (levels - mean).div_(std).numpy()
