"""Networks of the operator's own: folders as timm and Hugging Face write them.

`config.json` names the architecture of timm, the classes and the preprocessing; a file of weights
lies beside it. Nothing here imports timm: `workers.engines.timm_network` does, where the network is
computed.
"""

import json
import math
import re
import zlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from models.labels import LabelSet, shipped
from models.networks.registry import NETWORKS
from models.networks.spec import Builder, Folder, Interpolation, NetworkSpec, Preprocessing

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""The files of weights that timm and Hugging Face write, the preferred file first."""

SUFFIXES = (".pth", ".pt", ".ckpt", ".tar", ".bin", ".safetensors")
"""Suffixes of weights files; a training of timm writes `model_best.pth.tar`."""

LARGEST = 1024
"""Pixels of a side of the input: the kernel of crops has no memory for more."""

IMAGENET_CLASSES = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WNID = re.compile(r"n\d{8}")

Positive = Annotated[float, Field(gt=0)]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda given: (
            [given.get(str(n)) for n in range(len(given))] if isinstance(given, dict) else given
        )
    ),
]
"""Names in class order; a dictionary has the numbers of the classes as its keys."""


class _Section(BaseModel):
    """A section in which null means that nothing is stated."""

    model_config = ConfigDict(allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _stated(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if value is not None}


class _Pretrained(_Section):
    """The section `pretrained_cfg` of a configuration, with timm's own defaults."""

    input_size: tuple[Literal[3], int, int] = (3, 224, 224)
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    crop_pct: float = Field(0.875, ge=0.5, le=1)
    crop_mode: Literal["center", "squash"] = "center"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[Positive, Positive, Positive] = (0.229, 0.224, 0.225)
    num_classes: int = IMAGENET_CLASSES
    label_names: Names = ()
    label_descriptions: dict[str, str] = {}


class _Config(_Section):
    """A whole configuration; the root's classes and names go before those of the section."""

    architecture: str
    num_classes: int | None = None
    label_names: Names = ()
    label_descriptions: dict[str, str] = {}
    model_args: dict[str, Any] = {}
    pretrained_cfg: dict[str, Any] = {}


def is_folder(network: str) -> bool:
    """Return whether a name of the setting `networks` is the path of a folder."""
    return "/" in network


def spec_of(network: str) -> NetworkSpec:
    """Return the specification of a network by its name or by its folder; ValueError is raised for
    a folder that cannot be served.
    """
    return _read(Path(network)) if is_folder(network) else NETWORKS[network]


def _read(folder: Path) -> NetworkSpec:
    name, path = folder.name, folder / CONFIG
    if not _NAME.fullmatch(name) or name in NETWORKS:
        raise ValueError(
            f"the folder {folder} gives its name to the network: rename it to letters, digits, "
            f"dots, hyphens and underscores, at most 64, and not to {', '.join(NETWORKS)}"
        )
    try:
        text = path.read_bytes()
        config = _Config.model_validate_json(text)
        stated = _stated(config, text)
    except OSError as error:
        raise ValueError(
            f"cannot read {path}: {error.strerror}; a network is a folder as "
            "`timm.models.save_for_hf` writes it, or the name of a built-in network"
        ) from error
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ")
            for each in error.errors()[:3]
        ]
        raise ValueError(f"{path} cannot be used: {'; '.join(faults)}") from None
    n_classes = stated.num_classes if config.num_classes is None else config.num_classes
    labels = _labels(path, config, stated, n_classes)
    return NetworkSpec(
        name=name,
        build=Builder(
            "workers.engines.timm_network.timm_network",
            {
                "architecture": config.architecture,
                "model_args": config.model_args,
                "pretrained_cfg": config.pretrained_cfg,
            },
        ),
        preprocessing=_preprocessing(path, text, stated),
        folder=Folder(folder, _weights(folder), n_classes, labels),
    )


def _stated(config: _Config, text: bytes) -> _Pretrained:
    """Return the section `pretrained_cfg`, whose keys are at the root where there is no section.

    The size that a network is built for goes before the size of the section, as timm has it.
    """
    given = config.pretrained_cfg or json.loads(text)
    size = config.model_args.get("img_size")
    if given.get("fixed_input_size") and size is not None:
        given = {**given, "input_size": [3, *(size if isinstance(size, list) else [size, size])]}
    return _Pretrained.model_validate(given)


def _preprocessing(path: Path, text: bytes, stated: _Pretrained) -> Preprocessing:
    """Return the values of timm's evaluation transform; its version is a checksum of the file."""
    _, height, width = stated.input_size
    if height != width or not 1 <= height <= LARGEST:
        raise ValueError(
            f"{path} asks for inputs of {height} × {width} pixels: Darkroom computes squares of "
            f"1 to {LARGEST} pixels a side"
        )
    return Preprocessing(
        resize=math.floor(height / stated.crop_pct),
        crop=height,
        mean=stated.mean,
        std=stated.std,
        version=zlib.crc32(text) & 0x7FFFFFFF,
        interpolation=Interpolation[stated.interpolation.upper()],
        squash=stated.crop_mode == "squash",
    )


def _labels(path: Path, config: _Config, stated: _Pretrained, n_classes: int) -> LabelSet | None:
    """Return the names of the classes, None where the configuration has no names.

    A thousand classes without names are those of ImageNet, as timm takes them.
    """
    names = config.label_names or stated.label_names
    if not names:
        return shipped("imagenet1k") if n_classes == IMAGENET_CLASSES else None
    if len(names) != n_classes:
        raise ValueError(
            f"{path} has {len(names)} label_names for {n_classes} classes: give a name for each "
            "class, in class order"
        )
    described = stated.label_descriptions | config.label_descriptions
    return LabelSet(
        path.parent.name,
        tuple(described.get(name, name) for name in names),
        tuple(name if _WNID.fullmatch(name) else None for name in names),
    )


def _weights(folder: Path) -> Path | None:
    """Return the weights file of a folder, None where it has no such file or several."""
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if not found:
        found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
        found = found if len(found) == 1 else []
    return found[0] if found else None
