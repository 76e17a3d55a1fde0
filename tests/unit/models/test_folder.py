"""The configuration of a network's folder, read without timm."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from models.networks.folder import spec_of
from models.networks.registry import RESNET18
from models.networks.spec import Interpolation
from models.settings import Settings
from models.weights.sources import LocalFile, Random, resolve, resolve_all

DIGEST = "0" * 64


def folder(parent: Path, *, file: str = "model.safetensors", **config: Any) -> Path:
    """Write a folder called `own` with this configuration and an empty file of weights."""
    made = parent / "own"
    made.mkdir()
    (made / "config.json").write_text(json.dumps({"architecture": "resnet18", **config}))
    (made / file).write_bytes(b"")
    return made


def of(**given: Any) -> Settings:
    return Settings.model_validate(given)


def test_a_configuration_of_timm_becomes_a_specification(tmp_path: Path) -> None:
    stated = {
        "input_size": [3, 384, 384],
        "interpolation": "bilinear",
        "crop_pct": 0.95,
        "crop_mode": "squash",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.25, 0.5, 0.25],
    }
    names = {"0": "n02123045", "1": "dog"}
    described = {"n02123045": "tabby"}
    path = folder(
        tmp_path,
        num_classes=2,
        label_names=names,
        label_descriptions=described,
        pretrained_cfg=stated,
    )
    spec = spec_of(str(path))
    found = spec.preprocessing
    assert (spec.name, spec.title) == ("own", "timm's resnet18")
    assert (found.resize, found.crop, found.squash) == (404, 384, True)
    assert found.interpolation is Interpolation.BILINEAR
    assert (found.mean, found.std) == ((0.5, 0.5, 0.5), (0.25, 0.5, 0.25))
    assert spec.folder is not None
    assert spec.folder.labels is not None
    assert spec.folder.labels.labels == ("tabby", "dog")
    assert spec.folder.labels.wnids == ("n02123045", None)
    (path / "config.json").write_text((path / "config.json").read_text() + "\n")
    assert spec_of(str(path)).preprocessing.version != found.version


def test_a_short_configuration_has_the_defaults_of_timm(tmp_path: Path) -> None:
    spec = spec_of(str(folder(tmp_path, pretrained_cfg={"crop_mode": None})))
    found = spec.preprocessing
    assert (found.resize, found.crop, found.squash) == (256, 224, False)
    assert found.interpolation is Interpolation.BICUBIC
    assert found.mean == RESNET18.preprocessing.mean
    assert spec.folder is not None
    assert spec.folder.labels is not None
    assert len(spec.folder.labels.labels) == 1000


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"architecture": None}, "config.json cannot be used: architecture: Field required"),
        ({"pretrained_cfg": {"crop_pct": 1.2}}, "crop_pct: Input should be less than or equal"),
        ({"pretrained_cfg": {"crop_pct": 1e-9}}, "crop_pct: Input should be greater than or equal"),
        ({"pretrained_cfg": {"std": [0, 1, 1]}}, "std.0: Input should be greater than 0"),
        ({"pretrained_cfg": {"mean": [0, 0, math.nan]}}, "mean.2: Input should be a finite number"),
        ({"crop_pct": 2}, "crop_pct: Input should be less than or equal"),
        (
            {"model_args": {"img_size": [64.5]}, "pretrained_cfg": {"fixed_input_size": True}},
            "input_size.1: Input should be a valid integer",
        ),
        ({"pretrained_cfg": {"interpolation": "lanczos"}}, "should be 'bilinear' or 'bicubic'"),
        ({"pretrained_cfg": {"crop_mode": "border"}}, "should be 'center' or 'squash'"),
        ({"pretrained_cfg": {"input_size": [1, 28, 28]}}, "input_size.0: Input should be 3"),
        ({"pretrained_cfg": {"input_size": [3, 224, 192]}}, "224 × 192 pixels: .* squares"),
        ({"num_classes": 2, "label_names": ["a"]}, "has 1 label_names for 2 classes"),
        ({"num_classes": 2, "label_names": {"0": "a", "5": "b"}}, "label_names.1: Input should be"),
        ({"num_classes": 2}, "needs labels.*WEIGHTS_LABELS.*or give label_names in config.json"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_fault(
    tmp_path: Path, config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        resolve_all(of(networks=str(folder(tmp_path, **config))))


def test_a_folder_without_configuration_and_a_bad_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none/config.json: .*save_for_hf"):
        of(networks=str(tmp_path / "none"))
    path = folder(tmp_path)
    text = (path / "config.json").read_text()
    (path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be used: Invalid JSON"):
        of(networks=str(path))
    (path / "config.json").write_text(text)
    for name in ("resnet18", "a name"):
        with pytest.raises(ValueError, match="gives its name to the network: rename it"):
            of(networks=str(path.rename(path.with_name(name))))
        path.with_name(name).rename(path)
    with pytest.raises(ValueError, match=r"are named own; .*name each network once"):
        of(networks=f"{path},resnet18,{path}/")
    (embedding := path.with_name("own_embedding")).symlink_to(path)
    with pytest.raises(ValueError, match="an embedding, are named own_embedding; rename a folder"):
        of(networks=f"{path},{embedding}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"no network 'own'.*is written \./own"):
        of(networks="own")
    assert of(networks="./own,resnet18").networks == (str(path), "resnet18")


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "model_best.pth.tar"])
def test_the_weights_are_the_folder_s_unless_the_settings_name_others(
    tmp_path: Path, file: str
) -> None:
    path = folder(tmp_path, file=file)
    both = f"resnet18,{path}"
    own = LocalFile(path / file, None, None)
    assert resolve_all(of(networks=both))["own"] == own
    given = of(networks=both, weights="own=b.ckpt", weights_labels="own=l.txt")
    assert resolve_all(given)["own"] == LocalFile(Path("b.ckpt"), Path("l.txt"), None)
    given = of(networks=str(path), weights_sha256=f"own={DIGEST}")
    assert resolve(given, spec_of(str(path))) == LocalFile(path / file, None, DIGEST)
    assert resolve_all(of(networks=str(path), weights="random:4"))["own"] == Random(4)
    assert resolve_all(of(networks=both, weights="bundled"))["own"] == own
    with pytest.raises(ValueError, match="no weights 'other'; there are auto, random, random:"):
        resolve_all(of(networks=str(path), weights="other"))
    (path / file).unlink()
    with pytest.raises(ValueError, match="has no weights file, or several: save model"):
        resolve_all(of(networks=both))
