"""The specifications of networks against what torchvision publishes."""

import pytest

from models.networks.registry import NETWORKS

MIB = 1 << 20


@pytest.mark.parametrize("name", NETWORKS)
def test_the_default_weights_are_those_that_torchvision_publishes(name: str) -> None:
    from torchvision import models

    spec = NETWORKS[name]
    default, theirs = spec.weights[0], models.get_model_weights(name).DEFAULT
    assert default.network == spec.name
    assert default.name == theirs.name.lower()
    assert default.url == theirs.url
    assert default.url.endswith(f"/{default.filename}")
    assert default.filename == f"{spec.name}-{default.sha256[:8]}.pth"
    assert len(default.sha256) == 64
    assert abs(default.size / MIB - theirs.meta["_file_size"]) < 0.001
    ours, transform = spec.preprocessing, theirs.transforms()
    assert [ours.resize] == transform.resize_size
    assert [ours.crop] == transform.crop_size
    assert [*ours.mean] == transform.mean
    assert [*ours.std] == transform.std
    assert transform.interpolation.value == "bilinear"
