"""Networks of timm, by the configuration in their folder: the only file that imports timm."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from models.did_you_mean import closest
from models.networks.spec import NetworkSpec
from workers.engines.builder import build_empty


def timm_network(
    *,
    architecture: str,
    model_args: Mapping[str, Any],
    pretrained_cfg: Mapping[str, Any],
    n_classes: int,
) -> nn.Module:
    """Return a network with fresh weights. Nothing is downloaded."""
    import timm

    made: nn.Module = timm.create_model(
        architecture,
        pretrained=False,
        pretrained_cfg=dict(pretrained_cfg),
        # timm would open a checkpoint by itself, before version 1.0.26 also with code in it.
        **{**model_args, "num_classes": n_classes, "checkpoint_path": ""},
    )
    return made


def described(spec: NetworkSpec) -> NetworkSpec:
    """Return the specification of a folder with the name and the width of its last layer.

    The forward pass runs once without numbers: ValueError says why the network cannot be served.
    """
    assert spec.folder is not None
    where, architecture = spec.folder.path, str(spec.build.arguments["architecture"])
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision of another torch
        torch_version = torch.__version__.partition("+")[0]
        raise ValueError(
            f"the network {where} needs the extra timm ({error}): run `pip install timm "
            f"torch=={torch_version}`, which keeps this PyTorch"
        ) from error
    if not timm.is_model(architecture):
        close = closest(architecture.partition(".")[0], timm.list_models())
        raise ValueError(
            f"{where}: timm {timm.__version__} has no architecture {architecture!r}"
            f"{f' (did you mean {close!r}?)' if close else ''}; `timm.list_models()` lists the "
            "names, and a newer timm may have more"
        )
    side = spec.preprocessing.crop
    try:
        with torch.device("meta"), torch.inference_mode():
            network: Any = build_empty(spec, spec.folder.n_classes).eval()
            head, shape = network.get_classifier(), network(torch.empty(1, 3, side, side)).shape
    except Exception as error:  # of any architecture: each checks its arguments in its own way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{where}: {architecture} cannot be built with the model_args and the input_size of "
            f"config.json ({reason})"
        ) from error
    if spec.folder.n_classes == 0 and len(shape) == 2:
        return replace(spec, features=shape[1])
    if tuple(shape) != (1, spec.folder.n_classes):
        raise ValueError(
            f"{where}: {architecture} gives values of shape {tuple(shape)[1:]} and not a vector: "
            "choose another global_pool in the model_args of config.json"
        )
    if not isinstance(head, nn.Linear):
        raise ValueError(  # noqa: TRY004 (wrong content of a file)
            f"{where}: the last layer of {architecture} is not a single Linear layer, whose inputs "
            "could be the embedding: choose an architecture with such a layer, or num_classes 0"
        )
    (name,) = [name for name, module in network.named_modules() if module is head]
    return replace(spec, head=name, features=head.in_features)
